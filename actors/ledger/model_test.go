package ledger_test

import (
	"time"

	"github.com/postroom/postroom/actors/ledger"
	"github.com/postroom/postroom/messages"
	"github.com/postroom/postroom/simulation/model"
)

// modelled is the reference model as a subject: the same model that the simulation
// asks in lockstep.
type modelled struct{ *model.Model }

func newModel(config messages.QueueConfig, draw func(put, failure uint64) uint64) subject {
	return modelled{model.New(theSource, config, epoch, draw)}
}

func (m modelled) said() []string {
	var lines []string
	for _, e := range m.TakeEffects() {
		lines = append(lines, modelEffectText(&e))
	}
	return lines
}

func modelEffectText(e *model.Effect) string {
	switch e.Kind {
	case ledger.HandedOver:
		if e.Waiter != nil {
			return handedOverText("get "+e.Waiter.Holder, &e.Delivery)
		}
		return handedOverText(e.Consumer, &e.Delivery)
	case ledger.LeaseLost:
		if e.Waiter != nil {
			return lostText("get "+e.Waiter.Holder, e.Tag)
		}
		return lostText(e.Consumer, e.Tag)
	case ledger.Died:
		return diedText(e.Letter, e.Announce)
	case ledger.Trimmed:
		return trimmedText(e.Letter)
	case ledger.AlarmRaised:
		return alarmText(e.Alarm == messages.OldestAge)
	case ledger.Settled:
		return settledText(e.Owner)
	}
	return e.Kind.String()
}

func (m modelled) check(now time.Time) error { return conserved(m.Stats(now)) }

func (m modelled) newRecords() []string { return nil }

func (m modelled) restart(now time.Time) subject {
	m.Restart(now)
	return m
}
