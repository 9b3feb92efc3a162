package actors

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/internal/actorkit"
)

// numbers is a source of bytes that only look random.
type numbers struct {
	actorkit.Runtime
	from io.Reader
}

func (n numbers) Random() io.Reader { return n.from }

// SPEC E3: the ids of a batch are those that its messages would have got one by one, and
// a caller's own are left alone.
func TestE3_IDsOfABatchAreAsGoodAsSingleOnes(t *testing.T) {
	random := []byte(strings.Repeat("sixteen letters.no two alike: 0123456789-_+*#'~", 200))
	for _, given := range []int{0, 1, 2, 3, 100} { // every so many
		for n := range 40 {
			single := &Broker{runtime: numbers{from: bytes.NewReader(random)}}
			batch := &Broker{runtime: numbers{from: bytes.NewReader(random)}}
			puts := make([]ledger.Put, n)
			want := make([]string, n)
			for i := range puts {
				if given > 0 && i%given == 0 {
					puts[i].ID, want[i] = "mine", "mine"
				} else {
					want[i] = single.NewID()
				}
			}
			batch.nameAll(puts)
			for i := range puts {
				require.Equal(t, want[i], puts[i].ID, "put %d of %d, given every %d", i, n, given)
				if want[i] != "mine" {
					id, err := uuid.Parse(puts[i].ID)
					require.NoError(t, err)
					assert.Equal(t, uuid.Version(4), id.Version())
				}
			}
		}
	}
}
