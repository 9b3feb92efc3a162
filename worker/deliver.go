package worker

import (
	"context"
	"errors"
	"fmt"

	"github.com/postroom/postroom"
)

// ToQueue delivers intents to a queue of a broker. The message's id is the event key:
// one that is still there is a duplicate, and counts as delivered. One that was worked
// off and is sent again comes again, unless the queue's DedupWindow still knows it;
// either way the receiver's Apply makes it once.
//
// A key that the queue knows with another body is permanent and parks the intent, as is
// an intent over the broker's limits.
func ToQueue(b *postroom.Broker, queue string) Deliver {
	return func(ctx context.Context, in Intent) error {
		_, err := b.Put(ctx, queue, in.envelope())
		return verdict(err)
	}
}

// ToTopic publishes intents. It is delivered when every bound queue has taken its copy
// or has it already; a refusal of one of them tries all again, by the same key.
func ToTopic(b *postroom.Broker, topic string) Deliver {
	return func(ctx context.Context, in Intent) error {
		result, err := b.Publish(ctx, topic, in.envelope())
		if err == nil && result.Refused > 0 {
			return fmt.Errorf("publish %q: refused by %d of the bound queues", in.ID, result.Refused)
		}
		return verdict(err)
	}
}

func (in *Intent) envelope() postroom.Envelope {
	// A copy: the broker keeps what it is given.
	return postroom.Envelope{ID: in.ID, Body: in.Payload, Headers: in.Headers}.Clone()
}

// verdict marks the refusals that no retry will cure.
func verdict(err error) error {
	for _, permanent := range []error{postroom.ErrIDReused, postroom.ErrLimit, postroom.ErrArgument, postroom.ErrExpired} {
		if errors.Is(err, permanent) {
			return postroom.Permanent(err)
		}
	}
	return err
}
