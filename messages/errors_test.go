package messages

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// methodsNamed lists the types of this package that have a method of that name, so
// that a table can be held against all there are.
func methodsNamed(t *testing.T, method string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	types := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil || fn.Name.Name != method {
				continue
			}
			receiver := fn.Recv.List[0].Type
			if star, ok := receiver.(*ast.StarExpr); ok {
				receiver = star.X
			}
			types[receiver.(*ast.Ident).Name] = true
		}
	}
	return types
}

// typedErrors has each typed error with each reason it can have.
var typedErrors = []struct {
	err    error
	reason error
	text   string
}{
	{&ArgumentError{Op: "put", Argument: "Delay", Problem: "must not be negative"}, ErrArgument, "put: Delay must not be negative"},
	{&LimitError{Op: "put", What: "id bytes", Limit: 255, Got: 300}, ErrLimit, "put: id bytes 300, limit 255"},
	{&QueueNotFoundError{Op: "put", Queue: "q"}, ErrNotFound, `put: no queue "q"`},
	{&NotFoundError{Op: "cancel", What: "consumer", Name: "ctag-1"}, ErrNotFound, `cancel: no consumer "ctag-1"`},
	{&QueueConfigConflictError{Queue: "q", Fields: []string{"TTL", "MaxAge"}}, ErrConfigConflict,
		`declare queue "q": other settings in TTL, MaxAge`},
	{&QueueFullError{Queue: "q", Limit: "messages", Max: 10, Current: 10}, ErrQueueFull, `put: queue "q" is full: 10 of 10 messages`},
	{&QueueFullError{Queue: "q", Limit: "bytes", Max: 10, Current: 9}, ErrQueueFull, `put: queue "q" is full: 9 of 10 bytes`},
	{&PutError{Queue: "q", ID: "i", Reason: ErrIDReused}, ErrIDReused, `put "i" into queue "q": id reused for another body`},
	{&PutError{Queue: "q", ID: "i", Reason: ErrExpired}, ErrExpired, `put "i" into queue "q": expired before it was put`},
	{&PutError{Queue: "q", ID: "i", Reason: ErrDraining}, ErrDraining, `put "i" into queue "q": queue draining`},
	{&PutError{Queue: "q", ID: "i", Reason: ErrBusy}, ErrBusy, `put "i" into queue "q": busy`},
	{&PutError{Queue: "q", ID: "i", Reason: ErrQuarantined}, ErrQuarantined, `put "i" into queue "q": queue quarantined`},
	{&PutError{Queue: "q", ID: "i", Reason: ErrQueueClosed}, ErrQueueClosed, `put "i" into queue "q": queue closed`},
	{&QueueStateError{Op: "get", Queue: "q", Reason: ErrQueueClosed}, ErrQueueClosed, `get: queue "q": queue closed`},
	{&QueueStateError{Op: "get", Queue: "q", Reason: ErrQuarantined}, ErrQuarantined, `get: queue "q": queue quarantined`},
	{&StaleError{Verb: VerbAck, Receipt: Receipt{Queue: "q", Tag: 7}}, ErrStale, `ack tag 7 of queue "q": stale, never issued`},
	{&StaleError{Verb: VerbTouch, Receipt: Receipt{Queue: "q", Tag: 7}, Issued: true, Ended: LeaseExpired}, ErrStale,
		`touch tag 7 of queue "q": stale, over: expired`},
	{&StaleError{Verb: VerbNackIn, Receipt: Receipt{Queue: "q", Tag: 7}, Issued: true}, ErrStale,
		`nack_in tag 7 of queue "q": stale, over`},
	{&InUseError{Queue: "q", Messages: 2, Consumers: 1}, ErrInUse, `delete queue "q": in use: 2 messages, 1 consumers`},
	{&OutcomeError{Op: "put", Sent: false, Cause: context.Canceled}, ErrNotSent, "put: not sent: context canceled"},
	{&OutcomeError{Op: "put", Sent: true, Cause: context.DeadlineExceeded}, ErrOutcomeUnknown,
		"put: outcome unknown: context deadline exceeded"},
}

func TestEveryTypedErrorHasAReasonATextAndAHint(t *testing.T) {
	// What a handler says to the broker needs no advice to the one who said it; these
	// have tests of their own.
	ofHandlers := map[string]bool{"permanent": true, "RetryInError": true}
	tested := map[string]bool{}
	for _, tt := range typedErrors {
		name := reflect.TypeOf(tt.err).Elem().Name()
		tested[name] = true
		t.Run(name, func(t *testing.T) {
			wrapped := fmt.Errorf("while testing: %w", tt.err)
			if !errors.Is(tt.err, tt.reason) || !errors.Is(wrapped, tt.reason) {
				t.Errorf("%v is not %v", tt.err, tt.reason)
			}
			if got := tt.err.Error(); got != tt.text {
				t.Errorf("Error() = %q, want %q", got, tt.text)
			}
			if got := Hint(wrapped); got == "" || got != tt.err.(Hinter).Hint() {
				t.Errorf("Hint = %q, want that of the error itself", got)
			}
			for _, other := range []error{ErrEmpty, ErrLeaseLost, ErrNoDoor, ErrBrokerClosed} {
				if errors.Is(tt.err, other) {
					t.Errorf("%v is also %v", tt.err, other)
				}
			}
		})
	}
	for name := range methodsNamed(t, "Hint") {
		if !tested[name] {
			t.Errorf("%s has no line in the table", name)
		}
	}
	for name := range methodsNamed(t, "Unwrap") {
		if !tested[name] && !ofHandlers[name] {
			t.Errorf("%s is an error without a Hint", name)
		}
	}
}

// A log line may meet an error that a test or a user's own fake made half empty.
func TestTheZeroValueOfATypedErrorCanBePrinted(t *testing.T) {
	for _, tt := range typedErrors {
		zero := reflect.New(reflect.TypeOf(tt.err).Elem()).Interface().(error)
		if zero.Error() == "" || Hint(zero) == "" {
			t.Errorf("%T: Error() = %q, Hint = %q; want both to say something", zero, zero.Error(), Hint(zero))
		}
		if errors.Is(zero, ErrLeaseLost) {
			t.Errorf("%T is anything", zero)
		}
	}
}

func TestG1_AnOutcomeErrorIsItsCauseToo(t *testing.T) {
	cause := errors.New("shutting down")
	for _, sent := range []bool{false, true} {
		err := error(&OutcomeError{Op: "put", Sent: sent, Cause: cause})
		if !errors.Is(err, cause) || errors.Is(err, ErrOutcomeUnknown) != sent || errors.Is(err, ErrNotSent) == sent {
			t.Errorf("sent %t: %v does not tell its kind and its cause apart", sent, err)
		}
	}
}

// A hint must not call harmless what may have run twice (SPEC G1, O2).
func TestQ8_StaleHintsSayWhetherTheWorkMayRunTwice(t *testing.T) {
	twice := map[LeaseEnd]bool{LeaseExpired: true, LeaseReturned: true, LeaseRunning: true}
	for _, end := range []LeaseEnd{LeaseRunning, LeaseAcked, LeaseNacked, LeaseExpired, LeaseReturned} {
		hint := (&StaleError{Verb: VerbAck, Issued: true, Ended: end}).Hint()
		if got := strings.Contains(hint, "twice"); got != twice[end] {
			t.Errorf("lease %s: the hint %q warns of a second run: %t, want %t", end, hint, got, twice[end])
		}
	}
}

func TestHintOfAnythingElseIsEmpty(t *testing.T) {
	for _, err := range []error{nil, errors.New("x"), ErrEmpty, Permanent(errors.New("x"))} {
		if got := Hint(err); got != "" {
			t.Errorf("Hint(%v) = %q, want none", err, got)
		}
	}
	joined := errors.Join(errors.New("x"), &ArgumentError{Op: "put"})
	if Hint(joined) == "" {
		t.Error("the hint of a joined error is lost")
	}
}

func TestC2_Permanent(t *testing.T) {
	cause := errors.New("no such customer")
	if Permanent(nil) != nil || IsPermanent(nil) {
		t.Error("nil is permanent")
	}
	if IsPermanent(cause) || IsPermanent(fmt.Errorf("x: %w", cause)) {
		t.Error("an error that nobody marked is permanent")
	}
	marked := Permanent(cause)
	for name, err := range map[string]error{
		"itself":          marked,
		"twice":           Permanent(marked),
		"wrapped":         fmt.Errorf("handler: %w", marked),
		"joined":          errors.Join(errors.New("x"), marked),
		"wrapped, marked": Permanent(fmt.Errorf("handler: %w", cause)),
	} {
		if !IsPermanent(err) || !errors.Is(err, cause) {
			t.Errorf("%s: permanent is %t, its cause is kept %t", name, IsPermanent(err), errors.Is(err, cause))
		}
	}
	if marked.Error() != cause.Error() {
		t.Errorf("the mark changes the text to %q", marked)
	}
	typed := Permanent(&ArgumentError{Op: "put", Argument: "x", Problem: "y"})
	var bad *ArgumentError
	if !errors.As(typed, &bad) || Hint(typed) == "" {
		t.Error("the mark hides the type or the hint of what it wraps")
	}
}

func TestRetryInErrorSaysWhenAndWhy(t *testing.T) {
	cause := errors.New("rate limited")
	with, without := error(&RetryInError{Delay: time.Minute, Cause: cause}), error(&RetryInError{Delay: time.Minute})
	if got, want := with.Error(), "retry in 1m0s: rate limited"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if got, want := without.Error(), "retry in 1m0s"; got != want {
		t.Errorf("without a cause Error() = %q, want %q", got, want)
	}
	if !errors.Is(with, cause) || errors.Is(without, cause) {
		t.Error("the cause is lost, or made up")
	}
	var retry *RetryInError
	if !errors.As(fmt.Errorf("handler: %w", with), &retry) || retry.Delay != time.Minute {
		t.Error("wrapping hides the delay")
	}
	if IsPermanent(with) || !IsPermanent(&RetryInError{Cause: Permanent(cause)}) {
		t.Error("a retry is permanent exactly when its cause was marked so")
	}
}

func TestC2_PermanentHoldsThroughAnyWrapping(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		err := errors.New("x")
		marked := false
		for _, step := range rapid.SliceOfN(rapid.IntRange(0, 2), 0, 8).Draw(t, "steps") {
			switch step {
			case 0:
				err = fmt.Errorf("w: %w", err)
			case 1:
				err = errors.Join(errors.New("y"), err)
			case 2:
				err, marked = Permanent(err), true
			}
		}
		if IsPermanent(err) != marked {
			t.Fatalf("IsPermanent = %t, want %t", !marked, marked)
		}
	})
}

func TestEveryNameIsDistinctAndKnown(t *testing.T) {
	check := func(kind string, n int, first int, name func(int) string) {
		seen := map[string]bool{}
		for i := first; i < n; i++ {
			got := name(i)
			if got == "" || strings.HasPrefix(got, "unknown") || seen[got] {
				t.Errorf("%s %d is called %q", kind, i, got)
			}
			seen[got] = true
		}
		for _, i := range []int{n, 255} {
			if got := name(i); !strings.HasPrefix(got, "unknown") {
				t.Errorf("%s %d, which there is not, is called %q", kind, i, got)
			}
		}
	}
	check("verb", Verbs, 0, func(i int) string { return Verb(i).String() })
	check("reason", Reasons, 1, func(i int) string { return Reason(i).String() })
	check("lease end", int(LeaseReturned)+1, 0, func(i int) string { return LeaseEnd(i).String() })
	check("alarm", int(OldestAge)+1, 1, func(i int) string { return Alarm(i).String() })
	if got := Reason(0).String(); got != "unknown reason" {
		t.Errorf("no reason is called %q", got)
	}
	if Refuse.String() != "refuse" || DropOldest.String() != "drop oldest" {
		t.Errorf("the overflows are called %q and %q", Refuse, DropOldest)
	}
}
