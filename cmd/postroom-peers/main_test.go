package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

func TestUsageErrorsAreToldAndNothingRuns(t *testing.T) {
	for _, row := range []struct{ args, want string }{
		{"--rounds 0", "--rounds must be at least 1, not 0"},
		{"--messages 0", "--messages must be at least 1000, not 0"},
		{"--only kafka", `there is no peer "kafka"; there are postroom, `},
		{"--fast", "flag provided but not defined: -fast"},
		{"more", `unexpected argument "more"`},
	} {
		var out, errs bytes.Buffer
		if status := run(context.Background(), strings.Fields(row.args), &out, &errs); status != exitUsage {
			t.Errorf("%s: exit status %d, want %d", row.args, status, exitUsage)
		}
		if !strings.Contains(errs.String(), row.want) || out.Len() > 0 {
			t.Errorf("%s: said %q and %q, want %q", row.args, errs.String(), out.String(), row.want)
		}
	}
}

// small backlogs, for tests.
var small = [2]int{100, 200}

// All that are installed do the same small work, and each message is seen once.
func TestPeersDoTheWork(t *testing.T) {
	ctx := context.Background()
	for _, p := range peers() {
		t.Run(p.name, func(t *testing.T) {
			if p.missing != nil {
				if testing.Short() {
					t.Skip("it is a program of its own, which takes time to start")
				}
				if why := p.missing(); why != "" {
					t.Skip(why)
				}
			}
			r := &result{}
			if err := r.round(ctx, p, 1000, small); err != nil {
				t.Fatal(err)
			}
			if len(r.life) != 1 || r.life[0] <= 0 {
				t.Fatalf("measured %v", r.life)
			}
		})
	}
}

func TestAPeerThatFailsLeavesTheOthersAlone(t *testing.T) {
	r := &result{}
	p := peer{start: func(context.Context, string) (session, error) { return nil, errors.New("no such port") }}
	if err := r.round(context.Background(), p, 1000, small); err == nil || err.Error() != "start: no such port" {
		t.Errorf("round returned %v", err)
	}
	rows := []*result{{Name: "one", Error: "start: no such port"}, {Name: "two", Skipped: "two is not installed"}, {Name: ourName, Rounds: 1, NS: spread{500, 400, 600}}}
	var out bytes.Buffer
	if err := write(&out, rows); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"failed: start: no such port", "skipped: two is not installed", "2000000"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
}
