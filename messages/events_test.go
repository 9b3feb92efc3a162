package messages

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// notices has one of each kind, so that the test below can fill them.
var notices = []Notice{
	Accepted{}, Refused{}, Delivered{}, Settled{}, Stale{}, LeaseRanOut{}, Died{}, Trimmed{}, AlarmRaised{},
	HandlerCrashed{}, HandlerStuck{}, WorkerRestarted{}, ConsumerStopped{}, ActorCrashed{}, Quarantined{},
	EventDropped{}, CopyRefused{},
}

func TestO3_NoNoticeTellsAnErrorTextOrAPanic(t *testing.T) {
	const secret = "card 4111 1111"
	listed := map[string]bool{}
	for _, n := range notices {
		v := reflect.New(reflect.TypeOf(n)).Elem()
		listed[v.Type().Name()] = true
		for i := range v.NumField() {
			switch v.Type().Field(i).Type.Kind() {
			case reflect.Interface: // an error, or what was panicked with
				v.Field(i).Set(reflect.ValueOf(errors.New(secret)))
			case reflect.Slice: // a stack, which prints arguments
				v.Field(i).SetBytes([]byte(secret))
			case reflect.String:
				v.Field(i).SetString("name")
			}
		}
		got := v.Interface().(Notice).String()
		if strings.Contains(got, "4111") {
			t.Errorf("%T tells it: %q", n, got)
		}
		if !strings.Contains(got, "name") || strings.Contains(got, "%!") {
			t.Errorf("%T says %q, want whom it is about", n, got)
		}
	}
	for name := range methodsNamed(t, "isNotice") {
		if !listed[name] {
			t.Errorf("%s has no line in the table", name)
		}
	}
}

func TestR10_DeadIsTheSumOverReasons(t *testing.T) {
	var c Counters
	for i := range c.DeadBy {
		c.DeadBy[i] = 1 << i
	}
	if got, want := c.Dead(), uint64(1<<Reasons-1); got != want {
		t.Errorf("Dead() = %d, want %d", got, want)
	}
}
