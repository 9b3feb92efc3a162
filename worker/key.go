package worker

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postroom/postroom/messages"
)

// Key is the identity of one operation. Keep it the same through every retry and
// redelivery. Caller and Operation scope the ID: two callers, or one caller for two
// operations, may use the same ID and mean different things.
type Key struct {
	Caller    string // who asks: a client, a queue; may be empty
	Operation string // what for: "credit", "send-invoice"
	ID        string // which one: a message's id
}

func (k Key) String() string {
	return strings.TrimPrefix(k.Caller+"/", "/") + k.Operation + "/" + k.ID
}

// KeyBytesMax bounds each part of a key.
const KeyBytesMax = 1 << 10

func (k Key) check(op string) error {
	for _, p := range []struct {
		name, value string
		empty       bool
	}{{"Caller", k.Caller, true}, {"Operation", k.Operation, false}, {"ID", k.ID, false}} {
		if p.value == "" && !p.empty {
			return &messages.ArgumentError{Op: op, Argument: "Key." + p.name, Problem: "must not be empty"}
		}
		if err := checkText(op, "Key."+p.name, p.value); err != nil {
			return err
		}
	}
	return nil
}

// checkText refuses what PostgreSQL's text cannot hold.
func checkText(op, name, value string) error {
	if len(value) > KeyBytesMax {
		return &messages.LimitError{Op: op, What: name + " bytes", Limit: KeyBytesMax, Got: int64(len(value))}
	}
	if !utf8.ValidString(value) || strings.IndexByte(value, 0) >= 0 {
		return &messages.ArgumentError{Op: op, Argument: name, Problem: "must be UTF-8 without NUL"}
	}
	return nil
}

// ErrKeyReused is a key that is known with another payload; see [KeyReusedError].
var ErrKeyReused = errors.New("key reused with another payload")

// KeyReusedError is an [Apply] of a key that was applied before with another payload.
// Nothing was changed. Unwraps to [ErrKeyReused]; postroom.Permanent, so that a
// message that causes it is dead at once.
type KeyReusedError struct {
	Key       Key
	AppliedAt time.Time // when the first payload was applied
}

func (e *KeyReusedError) Error() string {
	return fmt.Sprintf("apply %s: key reused with another payload; the first was applied at %s",
		e.Key, e.AppliedAt.UTC().Format(time.RFC3339))
}

// Unwrap makes it permanent.
func (e *KeyReusedError) Unwrap() error { return messages.Permanent(ErrKeyReused) }

// Hint says what to do.
func (e *KeyReusedError) Hint() string {
	return "one key means one payload: give another operation another id, and make payloads canonical"
}

// ErrPayload is a payload that is not what it claims to be. Always postroom.Permanent
// when this package returns it: no retry would cure it.
var ErrPayload = errors.New("invalid payload")

// Canonical rewrites a JSON text so that two texts that say the same are the same
// bytes: members sorted by name, no insignificant space, no needless escapes. Numbers
// stay as they were written (1 and 1.0 differ); of members with one name the last
// counts. Errors: [ErrPayload], permanent, for what is not one JSON value.
func Canonical(text []byte) ([]byte, error) {
	if !utf8.Valid(text) {
		// The decoder would read every bad byte as the same character.
		return nil, messages.Permanent(fmt.Errorf("%w: not JSON: not UTF-8", ErrPayload))
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, messages.Permanent(fmt.Errorf("%w: not JSON: %w", ErrPayload, err))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, messages.Permanent(fmt.Errorf("%w: more than one JSON value", ErrPayload))
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, messages.Permanent(fmt.Errorf("%w: %w", ErrPayload, err))
	}
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), nil
}

// KeyRow is a key as a [Store] keeps it.
type KeyRow struct {
	Key Key
	// Payload is the canonical payload, or its SHA-256 when Hashed.
	Payload   []byte
	Hashed    bool
	AppliedAt time.Time
}

// Same reports whether the row was made for this payload.
func (r *KeyRow) Same(payload []byte) bool {
	if r.Hashed {
		sum := sha256.Sum256(payload)
		return bytes.Equal(r.Payload, sum[:])
	}
	return bytes.Equal(r.Payload, payload)
}

// Hash returns the row with the payload's SHA-256 in its place.
func (r KeyRow) Hash() KeyRow {
	sum := sha256.Sum256(r.Payload)
	r.Payload, r.Hashed = sum[:], true
	return r
}
