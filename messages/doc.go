// Package messages is Postroom's vocabulary: envelopes, deliveries, commands,
// replies, events, configurations, limits and errors.
//
// Everything here is plain data that imports nothing of ours, so that an
// embedder's own actor can speak to a queue without the door:
//
//	ctx.Request(queue, &messages.Put{Envelope: messages.Envelope{Body: body}})
//	…
//	case *messages.Deliver:        // from the queue, after messages.Consume
//		ctx.Send(queue, &messages.Ack{Receipt: m.Delivery.Receipt()})
//	case *messages.Answer:         // to each command sent with ctx.Request
//
// A command that carries a [Ref] is answered through it (that is how the door
// waits); one without is answered by message to its sender, with an [*Answer].
package messages
