package simulation_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// A mailer that crashes after it has sent and before its ack sends twice: the message
// comes back when its lease has run out.
func ExampleSpec() {
	mailer := simulation.Spec{Name: "mailer", Build: func(w *simulation.World) {
		mail := w.Queue("mail", postroom.QueueConfig{MaxAttempts: 4})
		smtp := w.External("smtp", nil)
		w.Workers("mailer", 3, mail, simulation.Inline(func(ctx context.Context, d *postroom.Delivery) error {
			return smtp.Do(ctx, d.ID, "send")
		}), postroom.ConsumerConfig{})
		w.Produce("api", mail, simulation.Items(20), nil)
		w.At(simulation.AfterEffect("m7", 1), simulation.Fault{Kind: simulation.FaultCrash})
		w.Expect(simulation.EffectAtMostOnceByKey(smtp))
		w.Calm(10*time.Minute, simulation.Drained(mail))
	}}
	r := mailer.RunTwice(1)
	fmt.Println(r.Violations[0].Text)
	fmt.Println(r.Replay)
	// Output:
	// smtp was done 2 times under key "m7"
	// replay: exact
}

// Check in a test of your own: the handler as it stands in production, any fault of a
// worker, and what must hold.
func TestMailer(t *testing.T) {
	simulation.Check(t, simulation.Spec{Name: "mailer", Build: func(w *simulation.World) {
		mail := w.Queue("mail", postroom.QueueConfig{MaxAttempts: 4})
		smtp := w.External("smtp", nil)
		w.Workers("mailer", 3, mail, simulation.Bubble(func(ctx context.Context, d *postroom.Delivery) error {
			time.Sleep(50 * time.Millisecond)
			return smtp.Do(ctx, d.ID, "send")
		}), postroom.ConsumerConfig{})
		w.Produce("api", mail, simulation.Items(10), nil)
		w.Faults(simulation.AnyWorkerFault())
		w.Expect(simulation.EffectAtLeastOnce(smtp))
	}})
}
