package messages

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// bounds are the fields of QueueConfig in which Unlimited (-1) may be written.
var bounds = []string{
	"MaxAttempts", "MaxMessages", "MaxBytes", "InboxLimit", "DedupLimit", "DeadLetterLimit", "DeadLetterBytes",
}

// numbers calls visit with every number and duration in a QueueConfig, those of its
// nested structs too, so that a field added later is not forgotten here.
func numbers(c *QueueConfig, visit func(name string, field reflect.Value)) {
	var walk func(prefix string, v reflect.Value)
	walk = func(prefix string, v reflect.Value) {
		for i := range v.NumField() {
			name, field := prefix+v.Type().Field(i).Name, v.Field(i)
			switch field.Kind() {
			case reflect.Int, reflect.Int64, reflect.Float64:
				visit(name, field)
			case reflect.Struct:
				walk(name+".", field)
			}
		}
	}
	walk("", reflect.ValueOf(c).Elem())
}

func setNumber(field reflect.Value, n int) {
	if field.Kind() == reflect.Float64 {
		field.SetFloat(float64(n))
	} else {
		field.SetInt(int64(n))
	}
}

func TestQ19_EveryNegativeNumberIsRefused(t *testing.T) {
	var names []string
	numbers(new(QueueConfig), func(name string, _ reflect.Value) { names = append(names, name) })
	if len(names) < 18 {
		t.Fatalf("only %d numbers found: %v", len(names), names)
	}
	for _, name := range names {
		for _, n := range []int{-2, math.MinInt32, -1} {
			var c QueueConfig
			numbers(&c, func(at string, field reflect.Value) {
				if at == name {
					setNumber(field, n)
				}
			})
			err := c.Validate()
			if n == Unlimited && slices.Contains(bounds, name) {
				if err != nil {
					t.Errorf("%s = Unlimited is refused: %v", name, err)
				}
				continue
			}
			var bad *ArgumentError
			if !errors.As(err, &bad) || bad.Op != "declare queue" || !strings.HasPrefix(name, bad.Argument) {
				t.Errorf("%s = %d gives %v, want an ArgumentError that names it", name, n, err)
			}
		}
	}
}

func TestQueueConfigValidate(t *testing.T) {
	tests := []struct {
		name   string
		config QueueConfig
		bad    string // the argument at fault; empty: none
	}{
		{"zero", QueueConfig{}, ""},
		{"its defaults", QueueConfig{}.WithDefaults(), ""},
		{"drop oldest", QueueConfig{Overflow: DropOldest}, ""},
		{"no such overflow", QueueConfig{Overflow: DropOldest + 1}, "Overflow"},
		{"a budget", QueueConfig{RetryBudget: RetryBudget{Ratio: 0.1, Floor: 3, Window: time.Minute}}, ""},
		{"a budget without a share", QueueConfig{RetryBudget: RetryBudget{Floor: 3}}, ""},
		{"a budget that is not a number", QueueConfig{RetryBudget: RetryBudget{Ratio: math.NaN()}}, "RetryBudget"},
		{"a dead letter topic", QueueConfig{DeadLetterTopic: "dead.orders"}, ""},
		{"a dead letter topic of the broker's own", QueueConfig{DeadLetterTopic: "$sys.dead.x"}, "DeadLetterTopic"},
		{"a dead letter topic too long", QueueConfig{DeadLetterTopic: strings.Repeat("x", 256)}, "DeadLetterTopic"},
		{"the shortest and longest waits", QueueConfig{AckTimeout: 1, MaxLease: math.MaxInt64, TTL: math.MaxInt64}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.config.Validate()
			if tt.bad == "" {
				if err != nil {
					t.Errorf("Validate() = %v, want nil", err)
				}
				return
			}
			var bad *ArgumentError
			if !errors.As(err, &bad) || bad.Argument != tt.bad {
				t.Errorf("Validate() = %v, want an ArgumentError about %s", err, tt.bad)
			}
		})
	}
}

func TestQ19_TheZeroConfigIsSafe(t *testing.T) {
	want := QueueConfig{
		AckTimeout: 30 * time.Second, MaxAttempts: 3,
		BackoffBase: time.Second, BackoffCap: 5 * time.Minute,
		MaxMessages: 1_000_000, MaxBytes: 1 << 30, InboxLimit: 65_536, DedupLimit: 1_000_000,
		DeadLetterLimit: 10_000, DeadLetterBytes: 256 << 20,
	}
	if got := (QueueConfig{}).WithDefaults(); got != want {
		t.Errorf("QueueConfig{}.WithDefaults() =\n%+v, want\n%+v", got, want)
	}
}

func TestQ19_DefaultsChangeNothingThatWasWritten(t *testing.T) {
	var c QueueConfig
	n := 100
	numbers(&c, func(_ string, field reflect.Value) { n++; setNumber(field, n) })
	c.NoTimeout, c.NoJitter, c.RetryExpired, c.SingleActive = true, true, true, true
	c.Overflow, c.DeadLetterTopic = DropOldest, "dead"
	if got := c.WithDefaults(); got != c {
		t.Errorf("WithDefaults changed\n%+v to\n%+v", c, got)
	}

	for _, name := range bounds { // Unlimited is written, so it is no default
		c := QueueConfig{}
		reflect.ValueOf(&c).Elem().FieldByName(name).SetInt(Unlimited)
		c = c.WithDefaults()
		if got := reflect.ValueOf(c).FieldByName(name).Int(); got != Unlimited {
			t.Errorf("WithDefaults made %s = Unlimited %d", name, got)
		}
	}

	for _, c := range []QueueConfig{{}, {RetryBudget: RetryBudget{Ratio: 0.2}}, c} {
		once := c.WithDefaults()
		if twice := once.WithDefaults(); twice != once {
			t.Errorf("the defaults of the defaults differ:\n%+v\n%+v", once, twice)
		}
	}
}

func TestR9_ABudgetThatIsOnHasAWindowAndAFloor(t *testing.T) {
	if (RetryBudget{}).On() {
		t.Error("the zero budget is on")
	}
	got := QueueConfig{RetryBudget: RetryBudget{Ratio: 0.2}}.WithDefaults().RetryBudget
	if want := (RetryBudget{Ratio: 0.2, Floor: 1, Window: 10 * time.Second}); got != want || !got.On() {
		t.Errorf("a budget of a ratio alone becomes %+v, want %+v", got, want)
	}
}

func TestB1_ConflictsNamesEachFieldAndOnlyIt(t *testing.T) {
	for i := range reflect.TypeFor[QueueConfig]().NumField() {
		field := reflect.TypeFor[QueueConfig]().Field(i)
		t.Run(field.Name, func(t *testing.T) {
			var other QueueConfig
			v := reflect.ValueOf(&other).Elem().Field(i)
			switch v.Kind() {
			case reflect.Int, reflect.Int64:
				v.SetInt(7)
			case reflect.Uint8:
				v.SetUint(1)
			case reflect.Bool:
				v.SetBool(true)
			case reflect.String:
				v.SetString("x")
			case reflect.Struct:
				v.Set(reflect.ValueOf(RetryBudget{Floor: 7}))
			default:
				t.Fatalf("a field of kind %s: say here how to change it", v.Kind())
			}
			if got := (QueueConfig{}).Conflicts(other); !slices.Equal(got, []string{field.Name}) {
				t.Errorf("Conflicts = %v, want [%s]", got, field.Name)
			}
			if got := other.Conflicts(QueueConfig{}); !slices.Equal(got, []string{field.Name}) {
				t.Errorf("the other way round: Conflicts = %v, want [%s]", got, field.Name)
			}
			if got := other.Conflicts(other); got != nil {
				t.Errorf("with itself: Conflicts = %v, want none", got)
			}
		})
	}
}

func TestB1_DeclarationsCompareAfterDefaults(t *testing.T) {
	if got := (QueueConfig{}).Conflicts(QueueConfig{}.WithDefaults()); got != nil {
		t.Errorf("the zero config conflicts with its own defaults in %v", got)
	}
	got := QueueConfig{MaxAttempts: 5, TTL: time.Hour}.Conflicts(QueueConfig{AckTimeout: time.Minute})
	if want := []string{"AckTimeout", "MaxAttempts", "TTL"}; !slices.Equal(got, want) {
		t.Errorf("Conflicts = %v, want %v, in the order of the fields", got, want)
	}
}

func TestC1_ConsumerConfig(t *testing.T) {
	tests := []struct {
		name   string
		config ConsumerConfig
		bad    string
	}{
		{"zero", ConsumerConfig{}, ""},
		{"prefetch above concurrency", ConsumerConfig{Concurrency: 2, Prefetch: 10}, ""},
		{"prefetch follows concurrency", ConsumerConfig{Concurrency: 2}, ""},
		{"prefetch below concurrency", ConsumerConfig{Concurrency: 3, Prefetch: 2}, "Prefetch"},
		{"negative concurrency", ConsumerConfig{Concurrency: -1}, "Concurrency"},
		{"negative prefetch", ConsumerConfig{Prefetch: -1}, "Prefetch"},
		{"negative lease", ConsumerConfig{AckTimeout: -1}, "AckTimeout"},
		{"unlimited handler", ConsumerConfig{HandlerTimeout: Unlimited}, ""},
		{"negative handler timeout", ConsumerConfig{HandlerTimeout: -time.Second}, "HandlerTimeout"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.config.Validate()
			var bad *ArgumentError
			switch {
			case tt.bad == "" && err != nil:
				t.Errorf("Validate() = %v, want nil", err)
			case tt.bad != "" && (!errors.As(err, &bad) || bad.Argument != tt.bad):
				t.Errorf("Validate() = %v, want an ArgumentError about %s", err, tt.bad)
			}
		})
	}
	want := ConsumerConfig{Concurrency: 1, Prefetch: 1, HandlerTimeout: 10 * time.Minute}
	if got := (ConsumerConfig{}).WithDefaults(); got != want {
		t.Errorf("ConsumerConfig{}.WithDefaults() = %+v, want %+v", got, want)
	}
	if got := (ConsumerConfig{Concurrency: 4}).WithDefaults().Prefetch; got != 4 {
		t.Errorf("four handlers have a prefetch of %d, want 4", got)
	}
	if got := (ConsumerConfig{HandlerTimeout: Unlimited}).WithDefaults().HandlerTimeout; got != Unlimited {
		t.Errorf("an unlimited handler timeout becomes %d", got)
	}
}
