package report

import (
	"testing"
	"time"
)

func TestAxisStepsAreRound(t *testing.T) {
	for _, row := range []struct {
		length, want time.Duration
	}{
		{10, 1}, {8 * time.Millisecond, time.Millisecond}, {13 * time.Second, 2 * time.Second}, {100 * time.Second, 30 * time.Second},
		{10 * time.Minute, 2 * time.Minute}, {time.Hour, 10 * time.Minute}, {30 * 24 * time.Hour, 96 * time.Hour}, {0, 1},
	} {
		if got := step(row.length, 8); got != row.want {
			t.Errorf("an axis of %v has a step of %v, want %v", row.length, got, row.want)
		}
	}
}

func TestInstantsAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 1500 * time.Millisecond: "1.5s", 4168666666: "4.169s", 20 * time.Millisecond: "20ms",
		2 * time.Minute: "2m", 90 * time.Second: "1m30s", 2 * time.Hour: "2h", 61 * time.Minute: "1h1m", 1234567: "1.235ms",
	} {
		if got := short(d); got != want {
			t.Errorf("%v is written %s, want %s", d, got, want)
		}
	}
}

func TestNamesAreInNaturalOrder(t *testing.T) {
	for _, row := range []struct {
		less, more string
	}{
		{"w-2", "w-10"}, {"a-9", "b-1"}, {"w", "w-1"}, {"w-01", "w-2"}, {"w-2-a", "w-2-b"},
		{"w-99999999999999999999999", "w-x"},
	} {
		less, more := natural(row.less, row.more), natural(row.more, row.less)
		if less >= 0 || more <= 0 {
			t.Errorf("%s and %s: %d and %d, want less and more", row.less, row.more, less, more)
		}
	}
}
