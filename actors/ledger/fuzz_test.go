package ledger_test

import (
	"testing"
)

// FuzzLedger reads its input as a program, a byte to a choice, and checks after
// every command that the ledger does what the model does, that its invariants
// hold, that its records fold to it, and that nothing is lost or counted twice:
//
//	puts + redriven in = ready + delayed + leased + acks + dead + purged + dropped
//
// A failing input is saved under testdata/fuzz and becomes a regression test.
func FuzzLedger(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("put, lend, ack"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x30\x00\x01\x00\x00\x00\x00\x00\x0c\x00\x00\x60\x00\x00\x05"))
	for seed := range byte(8) { // long programs of every kind of command
		long := make([]byte, 400)
		for i := range long {
			long[i] = byte(keyed(uint64(seed), uint64(i)))
		}
		f.Add(long)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) > 600 {
			return // the fold after each step is quadratic
		}
		p := newPair()
		g := &generator{choose: bytewise(&input)}
		if diff := p.run(g.config()); diff != "" {
			t.Fatal(diff)
		}
		for len(input) > 0 {
			if diff := p.run(g.line(p)); diff != "" {
				t.Fatal(diff)
			}
			if err := conserved(p.ledger.subject.Stats(p.ledger.now)); err != nil {
				t.Fatalf("after %q: %v", p.program[len(p.program)-1], err)
			}
		}
	})
}
