package messages

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestE4_LimitsCheck(t *testing.T) {
	limits := Limits{IDBytes: 4, Headers: 2, HeaderBytes: 10, BodyBytes: 8}
	none := Limits{IDBytes: Unlimited, Headers: Unlimited, HeaderBytes: Unlimited, BodyBytes: Unlimited}
	three := map[string]string{"a": "", "b": "", "c": ""}
	tests := []struct {
		name     string
		envelope Envelope
		over     string // what is over a limit
		got      int64
		bad      string // or which argument is bad
	}{
		{"empty", Envelope{}, "", 0, ""},
		{"all at their limits", Envelope{
			ID: "1234", Body: make([]byte, 8), Headers: map[string]string{"k1": "v1", "k2": "v2"}, Extra: []byte("x"), ContentType: "y",
		}, "", 0, ""},
		{"id", Envelope{ID: "12345"}, "id bytes", 5, ""},
		{"body", Envelope{Body: make([]byte, 9)}, "body bytes", 9, ""},
		{"headers", Envelope{Headers: three}, "headers", 3, ""},
		{"header keys", Envelope{Headers: map[string]string{"12345678901": ""}}, "header bytes", 11, ""},
		{"header values", Envelope{Headers: map[string]string{"": "12345678901"}}, "header bytes", 11, ""},
		{"extra", Envelope{Extra: make([]byte, 11)}, "header bytes", 11, ""},
		{"content type", Envelope{ContentType: "text/plain+"}, "header bytes", 11, ""},
		{"together", Envelope{Headers: map[string]string{"ab": "cd"}, Extra: make([]byte, 4), ContentType: "xyz"}, "header bytes", 11, ""},
		{"lowest priority", Envelope{Priority: 0}, "", 0, ""},
		{"highest priority", Envelope{Priority: PriorityMax}, "", 0, ""},
		{"priority too high", Envelope{Priority: PriorityMax + 1}, "", 0, "Priority"},
		{"negative priority", Envelope{Priority: -1}, "", 0, "Priority"},
		{"delay", Envelope{Delay: time.Hour}, "", 0, ""},
		{"negative delay", Envelope{Delay: -1}, "", 0, "Delay"},
		{"past deadline", Envelope{ExpiresAt: time.Unix(0, 0)}, "", 0, ""}, // the queue's to refuse: it has the clock
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := limits.Check("put", &tt.envelope)
			var over *LimitError
			var bad *ArgumentError
			switch {
			case tt.over != "":
				if !errors.As(err, &over) || over.What != tt.over || over.Got != tt.got || over.Op != "put" {
					t.Errorf("Check = %v, want %s %d over its limit", err, tt.over, tt.got)
				}
				if err := none.Check("put", &tt.envelope); err != nil {
					t.Errorf("without limits: Check = %v, want nil", err)
				}
			case tt.bad != "":
				if !errors.As(err, &bad) || bad.Argument != tt.bad || bad.Op != "put" {
					t.Errorf("Check = %v, want an ArgumentError about %s", err, tt.bad)
				}
			case err != nil:
				t.Errorf("Check = %v, want nil", err)
			}
		})
	}
}

func TestE4_LimitsHaveDefaults(t *testing.T) {
	want := Limits{IDBytes: 255, Headers: 64, HeaderBytes: 64 << 10, BodyBytes: 16 << 20}
	if got := (Limits{}).WithDefaults(); got != want {
		t.Errorf("Limits{}.WithDefaults() = %+v, want %+v", got, want)
	}
	for _, l := range []Limits{
		{1, 2, 3, 4}, {Unlimited, Unlimited, Unlimited, Unlimited},
	} {
		if got := l.WithDefaults(); got != l {
			t.Errorf("WithDefaults changed %+v to %+v", l, got)
		}
	}
}

func TestE4_CheckQueueName(t *testing.T) {
	for _, name := range []string{"a", "orders", "orders.eu", "$sys", "#", "a b", "~", strings.Repeat("x", 200)} {
		if err := CheckQueueName("declare queue", name); err != nil {
			t.Errorf("CheckQueueName(%q) = %v, want nil", name, err)
		}
	}
	var bad *ArgumentError
	if err := CheckQueueName("put", ""); !errors.As(err, &bad) || bad.Op != "put" || bad.Argument != "queue" {
		t.Errorf("the empty name gives %v, want an ArgumentError", err)
	}
	var over *LimitError
	for _, name := range []string{strings.Repeat("x", 201), strings.Repeat("é", 101)} {
		if err := CheckQueueName("put", name); !errors.As(err, &over) || over.Limit != 200 || over.Got != int64(len(name)) {
			t.Errorf("a name of %d bytes gives %v, want a LimitError", len(name), err)
		}
	}
	// Each byte at each place: a check of the first byte only would let the others in.
	for b := range 256 {
		printable := b >= 0x20 && b <= 0x7e && b != '/'
		for _, name := range []string{
			string([]byte{byte(b)}), string([]byte{byte(b), 'x'}), string([]byte{'x', byte(b)}),
		} {
			err := CheckQueueName("put", name)
			if printable != (err == nil) || err != nil && !errors.Is(err, ErrArgument) {
				t.Errorf("CheckQueueName(%q) = %v, want refused: %t", name, err, !printable)
			}
		}
	}
	for _, name := range []string{"köln", "日本", "a\u00a0b"} {
		if err := CheckQueueName("put", name); !errors.Is(err, ErrArgument) {
			t.Errorf("CheckQueueName(%q) = %v, want refused: not ASCII", name, err)
		}
	}
}

func TestT1_CheckTopicAndPattern(t *testing.T) {
	tests := []struct {
		text           string
		topic, pattern error // the reasons of their refusals; nil: taken
	}{
		{"", ErrArgument, ErrArgument},
		{"a", nil, nil},
		{".", nil, nil},
		{"a..b", nil, nil},
		{"a.*.#", nil, nil}, // in a topic these are words like any other
		{"日本.東京", nil, nil},
		{strings.Repeat("x", 255), nil, nil},
		{strings.Repeat("x", 256), ErrLimit, ErrLimit},
		{strings.Repeat("é", 128), ErrLimit, ErrLimit}, // bytes, not runes
		{"$sys.dead.orders", ErrArgument, nil},
		{"$sys.", ErrArgument, nil},
		{"$sys", nil, nil},
		{"$system.x", nil, nil},
		{"$SYS.x", nil, nil}, // case counts
		{"a.$sys.b", nil, nil},
	}
	for _, tt := range tests {
		if err := CheckTopic("publish", tt.text); !errors.Is(err, tt.topic) {
			t.Errorf("CheckTopic(%.20q) = %v, want %v", tt.text, err, tt.topic)
		}
		if err := CheckPattern("bind", "pattern", tt.text); !errors.Is(err, tt.pattern) {
			t.Errorf("CheckPattern(%.20q) = %v, want %v", tt.text, err, tt.pattern)
		}
	}

	var bad *ArgumentError
	if err := CheckTopic("publish", ""); !errors.As(err, &bad) || bad.Op != "publish" || bad.Argument != "topic" {
		t.Errorf("the empty topic gives %v, want one that names publish and topic", err)
	}
	var over *LimitError
	err := CheckPattern("bind", "pattern", strings.Repeat("x", 300))
	if !errors.As(err, &over) || over.Op != "bind" || over.What != "pattern bytes" || over.Limit != 255 || over.Got != 300 {
		t.Errorf("a pattern too long gives %v, want bind, pattern bytes 300, limit 255", err)
	}
}

func TestT6_TopicWordIsOneWord(t *testing.T) {
	for name, want := range map[string]string{
		"orders": "orders", "orders.eu.x": "orders_eu_x", ".": "_", "a_b": "a_b", "": "",
	} {
		if got := TopicWord(name); got != want {
			t.Errorf("TopicWord(%q) = %q, want %q", name, got, want)
		}
	}
}

// Texts of runes of one to four bytes, most of them around the limit.
var drawText = rapid.Custom(func(t *rapid.T) string {
	filler := rapid.SampledFrom([]string{"a", "é", "日", "🙂"}).Draw(t, "filler")
	n := rapid.IntRange(0, ErrorBytesMax+16).Draw(t, "bytes") / len(filler)
	return rapid.String().Draw(t, "head") + strings.Repeat(filler, n) + rapid.String().Draw(t, "tail")
})

func TestR4_CutErrorCutsAtTheEdgeOfARune(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawText.Draw(t, "text")
		got := CutError(text)
		switch {
		case len(text) <= ErrorBytesMax && got != text:
			t.Fatalf("a text of %d bytes was changed", len(text))
		case !strings.HasPrefix(text, got):
			t.Fatalf("%q is not the beginning of %q", got, text)
		case len(got) > ErrorBytesMax:
			t.Fatalf("%d bytes left, limit %d", len(got), ErrorBytesMax)
		case len(text) > ErrorBytesMax && len(got) < ErrorBytesMax-utf8.UTFMax+1:
			t.Fatalf("%d bytes left of %d: more is gone than one rune", len(got), len(text))
		case utf8.ValidString(text) && !utf8.ValidString(got):
			t.Fatalf("%q was cut inside a rune: %q", text, got[len(got)-4:])
		}
	})
}

// An error text may be any bytes. Looking for the edge of a rune must not eat it up.
func TestR4_CutErrorKeepsWhatIsNoText(t *testing.T) {
	for _, b := range []string{"\x80", "\xbf", "\xff"} {
		if got := CutError(strings.Repeat(b, 2*ErrorBytesMax)); len(got) < ErrorBytesMax-utf8.UTFMax+1 {
			t.Errorf("of 2 KiB of %q %d bytes are left, want about 1 KiB", b, len(got))
		}
	}
}
