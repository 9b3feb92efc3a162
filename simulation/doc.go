// Package simulation runs the unchanged broker, door included, on one thread and in
// virtual time: an hour takes no time, and the same seed gives the same run.
//
//	simulation.Run(1, func(w *simulation.World) {
//		broker := w.MustOpen()
//		…
//		w.Sleep(time.Hour) // leases end, retries come due, handlers run
//	})
package simulation
