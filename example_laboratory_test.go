package postroom_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/postroom/postroom"
	"github.com/postroom/postroom/simulation"
)

// sendMail is an embedder's handler: it knows nothing of the simulation.
func sendMail(ctx context.Context, smtp *simulation.External, d *postroom.Delivery) error {
	time.Sleep(50 * time.Millisecond)
	return smtp.Do(ctx, d.ID, "send")
}

// A test of the docs: every mail that is acked was sent, whatever its worker went through.
func TestDocsEveryMailIsSentWhateverTheWorkersGoThrough(t *testing.T) {
	simulation.Check(t, simulation.Spec{Name: "mailer", Build: func(w *simulation.World) {
		mail := w.Queue("mail", postroom.QueueConfig{AckTimeout: 10 * time.Second})
		smtp := w.External("smtp", nil)
		w.Workers("mailer", 3, mail, simulation.Bubble(func(ctx context.Context, d *postroom.Delivery) error {
			return sendMail(ctx, smtp, d)
		}), postroom.ConsumerConfig{})
		w.Produce("api", mail, simulation.Items(10), nil)
		w.Faults(simulation.AnyWorkerFault())
		w.Expect(simulation.EffectAtLeastOnce(smtp))
	}})
}

// A crash between the effect and the ack: the mail is sent twice, and the run says so,
// the same each time.
func Example_laboratory() {
	mailer := simulation.Spec{Name: "mailer", Build: func(w *simulation.World) {
		mail := w.Queue("mail", postroom.QueueConfig{})
		smtp := w.External("smtp", nil)
		w.Workers("mailer", 3, mail, simulation.Script(time.Second, smtp), postroom.ConsumerConfig{})
		w.Produce("api", mail, simulation.Items(10), nil)
		w.At(simulation.AfterEffect("m7", 1), simulation.Fault{Kind: simulation.FaultCrash})
		w.Expect(simulation.EffectAtMostOnceByKey(smtp))
	}}
	r := mailer.RunTwice(1)
	fmt.Println(r.Violations[0].Text)
	fmt.Println(r.Replay)
	// Output:
	// smtp was done 2 times under key "m7"
	// replay: exact
}
