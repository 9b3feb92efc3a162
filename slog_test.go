package postroom_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/simulation"
)

const secret = "hunter2"

// notices is one of each kind, with a secret wherever somebody else's text can be.
var notices = []struct {
	notice postroom.Notice
	want   string // level, message and attributes
}{
	{messages.Accepted{Queue: "q", ID: "i", Delayed: time.Second}, `DEBUG accepted {"delayed":1000000000,"id":"i","queue":"q"}`},
	{messages.Delivered{Queue: "q", ID: "i", Consumer: "c", Tag: 7, Attempt: 2, Deadline: simulation.Epoch}, `DEBUG delivered {"attempt":2,"consumer":"c","deadline":"2026-01-01T00:00:00Z","id":"i","queue":"q","tag":7}`},
	{messages.Settled{Queue: "q", Tag: 7, Verb: postroom.VerbAck}, `DEBUG settled {"queue":"q","tag":7,"verb":"ack"}`},
	{messages.WorkerRestarted{Queue: "q", Consumer: "c", After: time.Second}, `INFO worker restarted {"after":1000000000,"consumer":"c","queue":"q"}`},
	{messages.ConsumerStopped{Queue: "q", Consumer: "c"}, `INFO consumer stopped {"consumer":"c","queue":"q"}`},
	{messages.ConsumerStopped{Queue: "q", Consumer: "c", Reason: wrapped(postroom.ErrQueueClosed)}, `INFO consumer stopped {"consumer":"c","queue":"q","reason":"queue closed"}`},
	{messages.ConsumerStopped{Queue: "q", Consumer: "c", Reason: wrapped(postroom.ErrCrashLoop)}, `WARN consumer stopped {"consumer":"c","queue":"q","reason":"handler crashes in a loop"}`},
	{messages.Refused{Queue: "q", ID: "i", Reason: postroom.ErrQueueFull}, `WARN refused {"id":"i","queue":"q","reason":"queue full"}`},
	{messages.Refused{Queue: "q", ID: "i", Reason: errors.New(secret)}, `WARN refused {"id":"i","queue":"q"}`},
	{messages.Stale{Queue: "q", Tag: 7, Verb: postroom.VerbAck, Ended: messages.LeaseExpired}, `WARN stale {"ended":"expired","queue":"q","tag":7,"verb":"ack"}`},
	{messages.LeaseRanOut{Queue: "q", Consumer: "c", Tag: 7}, `WARN lease expired {"consumer":"c","queue":"q","tag":7}`},
	{messages.Died{Queue: "q", ID: "i", Reason: postroom.MaxAttempts, Attempts: 3, ErrorBytes: 9}, `WARN died {"attempts":3,"error_bytes":9,"id":"i","queue":"q","reason":"max_attempts"}`},
	{messages.Trimmed{Queue: "q", ID: "i", Number: 4}, `WARN trimmed {"id":"i","number":4,"queue":"q"}`},
	{messages.AlarmRaised{Queue: "q", Alarm: messages.OldestAge}, `WARN alarm {"alarm":"oldest_age","queue":"q"}`},
	{messages.HandlerCrashed{Queue: "q", Consumer: "c", Tag: 7, Reason: secret, Stack: []byte(secret)}, `WARN handler crashed {"consumer":"c","queue":"q","tag":7}`},
	{messages.HandlerStuck{Queue: "q", Consumer: "c", Tag: 7}, `WARN handler stuck {"consumer":"c","queue":"q","tag":7}`},
	{messages.EventDropped{Subscription: "sub-1", Topic: "a.b"}, `WARN event dropped {"subscription":"sub-1","topic":"a.b"}`},
	{messages.CopyRefused{Queue: "q", Topic: "a.b", Reason: wrapped(postroom.ErrDraining)}, `WARN copy refused {"queue":"q","reason":"queue draining","topic":"a.b"}`},
	{messages.Quarantined{Queue: "q", Reason: wrapped(postroom.ErrQuarantined)}, `ERROR quarantined {"queue":"q","reason":"queue quarantined"}`},
	{messages.ActorCrashed{Actor: "sub-1", Reason: errors.New(secret), Stack: []byte(secret)}, `ERROR actor crashed {"actor":"sub-1"}`},
}

func wrapped(reason error) error { return errors.Join(errors.New(secret), reason) }

// logOf writes notices to a log and returns its lines as "LEVEL message {attributes}".
func logOf(t *testing.T, o postroom.SlogOptions, told ...postroom.Notice) (lines []string) {
	t.Helper()
	var out bytes.Buffer
	listener := postroom.SlogListener(slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})), o)
	for _, n := range told {
		listener(n)
	}
	for line := range strings.Lines(out.String()) {
		record := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(line), &record))
		level, message := record["level"], record["msg"]
		for _, key := range []string{"level", "msg", "time"} {
			delete(record, key)
		}
		rest, err := json.Marshal(record)
		require.NoError(t, err)
		lines = append(lines, level.(string)+" "+message.(string)+" "+string(rest))
	}
	return lines
}

func TestO1_SlogWritesEachNoticeWithItsLevelAndAttributes(t *testing.T) {
	kinds := map[string]bool{}
	for _, row := range notices {
		kinds[strings.TrimPrefix(strings.SplitN(typeName(row.notice), "{", 2)[0], "messages.")] = true
		got := logOf(t, postroom.SlogOptions{}, row.notice)
		require.Len(t, got, 1, "records for %#v", row.notice)
		assert.Equal(t, row.want, got[0], "the record of %#v", row.notice)
	}
	for _, kind := range declaredNotices(t) {
		assert.True(t, kinds[kind], "notice %s is not in the table of this test", kind)
	}
}

// declaredNotices reads package messages for the types that are notices.
func declaredNotices(t *testing.T) (kinds []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "messages/events.go", nil, 0)
	require.NoError(t, err)
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "isNotice" {
			kinds = append(kinds, f.Recv.List[0].Type.(*ast.Ident).Name)
		}
	}
	require.NotEmpty(t, kinds)
	return kinds
}

func TestO3_SlogLeavesErrorTextsOutUnlessAsked(t *testing.T) {
	var all []postroom.Notice
	for _, row := range notices {
		all = append(all, row.notice)
	}
	assert.NotContains(t, strings.Join(logOf(t, postroom.SlogOptions{}, all...), "\n"), secret,
		"a secret in every error, panic value and stack, default options")
	with := logOf(t, postroom.SlogOptions{ErrorTexts: true}, all...)
	assert.Contains(t, with[14], `"error":"hunter2"`, "the crash, with ErrorTexts")
	assert.Contains(t, with[14], `"stack":"hunter2"`, "the crash, with ErrorTexts")
	assert.Contains(t, with[8], `"error":"hunter2"`, "the refusal, with ErrorTexts")
}

// The whole way: whatever a message and its handler hold, the log has none of it.
func TestO3_NoSecretOfAMessageReachesTheLog(t *testing.T) {
	for _, row := range []struct {
		texts bool
		want  bool
	}{{false, false}, {true, true}} {
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		run(t, 1, func(ctx context.Context, w *simulation.World) {
			b := w.MustOpen(postroom.WithListener(postroom.SlogListener(logger, postroom.SlogOptions{ErrorTexts: row.texts})))
			declare(t, b, "q", postroom.QueueConfig{AckTimeout: time.Second, MaxAttempts: 2, MaxMessages: 1, DeadLetterLimit: 1, DeadLetterAlarm: 1, DeadLetterTopic: "dead"})
			declare(t, b, "full", postroom.QueueConfig{MaxMessages: 1})
			require.NoError(t, b.Bind(ctx, "full", "#"))
			_, err := b.Subscribe(ctx, "#", func(string, *postroom.Event) { panic(secret) })
			require.NoError(t, err)
			crashes := 0
			_, err = b.Consume(ctx, "q", func(context.Context, *postroom.Delivery) error {
				if crashes++; crashes == 1 {
					panic(secret)
				}
				return postroom.Permanent(errors.New(secret))
			}, postroom.ConsumerConfig{})
			require.NoError(t, err)
			for range 3 {
				_, _ = b.Put(ctx, "q", postroom.Envelope{Body: []byte(secret), Headers: map[string]string{"password": secret}, Extra: []byte(secret), ContentType: secret})
				w.Sleep(time.Minute)
			}
			_, err = b.Put(ctx, "q", postroom.Envelope{ID: "late", Body: []byte(secret), ExpiresAt: w.Now()})
			require.ErrorIs(t, err, postroom.ErrExpired)
		})
		for _, message := range []string{"handler crashed", "lease expired", "worker restarted", "died", "trimmed", "alarm", "refused", "actor crashed", "copy refused"} {
			assert.Contains(t, out.String(), message, "the scenario should bring this notice")
		}
		assert.Equal(t, row.want, strings.Contains(out.String(), secret), "a secret in the log with ErrorTexts=%v:\n%s", row.texts, out.String())
	}
}

func TestSlogAsksForTheLevelFirst(t *testing.T) {
	var out bytes.Buffer
	listener := postroom.SlogListener(slog.New(slog.NewTextHandler(&out, nil)), postroom.SlogOptions{})
	accepted := postroom.Notice(messages.Accepted{Queue: "q", ID: "i"})
	allocations := testing.AllocsPerRun(100, func() { listener(accepted) })
	assert.Zero(t, allocations, "allocations for a notice below the logger's level")
	assert.Empty(t, out.String())
}
