package actors

import (
	"encoding/hex"
	"fmt"
	"io"
	"strings"

	"github.com/google/uuid"

	"github.com/postroom/postroom/actors/ledger"
)

// NewID makes an id from the runtime's random source (SPEC E3).
func (b *Broker) NewID() string {
	id, err := uuid.NewRandomFromReader(b.runtime.Random())
	if err != nil {
		panic(fmt.Sprintf("random source: %v", err)) // crypto/rand does not fail
	}
	return id.String()
}

const (
	idBytes   = len(uuid.UUID{})
	idLetters = 36
	// idsTogether is how many ids lie in one string: each keeps the others in memory.
	idsTogether = 8
)

// nameAll makes the ids of puts that have none: what NewID would make one after the
// other, at a third of the price.
func (b *Broker) nameAll(puts []ledger.Put) {
	nameless := 0
	for i := range puts {
		if puts[i].ID == "" {
			nameless++
		}
	}
	if nameless == 0 {
		return
	}
	random := b.random.Borrow(nameless * idBytes)
	defer b.random.Return(random)
	if _, err := io.ReadFull(b.runtime.Random(), *random); err != nil {
		panic(fmt.Sprintf("random source: %v", err))
	}
	var ids strings.Builder
	for i, rest := 0, *random; len(rest) > 0; i++ {
		if puts[i].ID != "" {
			continue
		}
		if ids.Len() == idsTogether*idLetters {
			ids.Reset() // which leaves what it has made alone
		}
		if ids.Len() == 0 {
			ids.Grow(min(idsTogether, len(rest)/idBytes) * idLetters)
		}
		begin := ids.Len()
		id := randomID(uuid.UUID(rest))
		ids.Write(id[:])
		puts[i].ID, rest = ids.String()[begin:], rest[idBytes:]
	}
}

// randomID writes the UUID of version 4 that is made of random bytes (RFC 9562, 5.4).
func randomID(of uuid.UUID) (letters [idLetters]byte) {
	of[6] = of[6]&0x0f | 0x40 // version
	of[8] = of[8]&0x3f | 0x80 // variant
	letters = [idLetters]byte{8: '-', 13: '-', 18: '-', 23: '-'}
	hex.Encode(letters[:], of[:4])
	hex.Encode(letters[9:], of[4:6])
	hex.Encode(letters[14:], of[6:8])
	hex.Encode(letters[19:], of[8:10])
	hex.Encode(letters[24:], of[10:])
	return letters
}
