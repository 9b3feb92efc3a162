package actors

import (
	"sync/atomic"

	"github.com/postroom/postroom/messages"
)

// answerFunc is a place for an answer that is not a waiting caller: an actor that
// goes on when it has it. The function runs on the answering actor's goroutine, so
// it only passes the answer on, as a message.
type answerFunc struct {
	done atomic.Bool
	pass func(messages.Answer)
}

// answerWith returns a Ref that hands the answer to pass, once: an actor that
// crashes after it has answered is made to answer again.
func answerWith(pass func(messages.Answer)) messages.Ref {
	return messages.Ref{To: &answerFunc{pass: pass}}
}

// Resolve implements [messages.Resolver].
func (f *answerFunc) Resolve(_ uint64, a messages.Answer) bool {
	if f.done.Swap(true) {
		return false
	}
	f.pass(a)
	return true
}

// Waiting implements [messages.Resolver].
func (f *answerFunc) Waiting(uint64) bool { return !f.done.Load() }
