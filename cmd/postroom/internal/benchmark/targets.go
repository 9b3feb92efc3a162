package benchmark

// Watched are the figures that have names of their own, all of them medians and all
// but lanes_ratio of the default executor. nil: not measured.
type Watched struct {
	FloorNS           *float64 `json:"floor_ns"`     // three bare hops, prefetch 256
	LifecycleNS       *float64 `json:"lifecycle_ns"` // single puts, prefetch 256, caller ids
	LifecycleRatio    *float64 `json:"lifecycle_ratio"`
	LanesRatio        *float64 `json:"lanes_ratio"`
	Batch64Ratio      *float64 `json:"batch64_ratio"` // caller ids
	PutRatio          *float64 `json:"put_ratio"`     // confirmed put to the bare round trip
	PutFloorNS        *float64 `json:"put_floor_ns"`
	AllocsPerMsg      *float64 `json:"allocs_per_msg"` // single puts
	DepthRatio        *float64 `json:"depth_ratio"`    // 1,000,000 ready against none
	BytesPerReady     *float64 `json:"bytes_per_ready"`
	BytesPerLease     *float64 `json:"bytes_per_lease"`
	BytesPerIdleQueue *float64 `json:"bytes_per_idle_queue"`
}

// Watched picks them out.
func (r *Report) Watched() (w Watched) {
	const one = lifecycleGroup + "/" + oneByOne + "/"
	if f := r.measured(one + goroutines); f != nil {
		w.FloorNS, w.LifecycleNS, w.LifecycleRatio = &f.FloorValue.Median, &f.Value.Median, &f.Ratio.Median
		w.AllocsPerMsg = &f.Allocs
	}
	if f := r.measured(one + lanes); f != nil {
		w.LanesRatio = &f.Ratio.Median
	}
	if f := r.measured(batch64); f != nil {
		w.Batch64Ratio = &f.Ratio.Median
	}
	if f := r.measured("put/confirmed/" + goroutines); f != nil {
		w.PutRatio, w.PutFloorNS = &f.Ratio.Median, &f.FloorValue.Median
	}
	if q, ok := r.quotient(depthMillion, depthZero); ok {
		w.DepthRatio = &q.Median
	}
	if f := r.measured(readyCaller); f != nil {
		w.BytesPerReady = &f.Value.Median
		if leased, ok := f.more("leased"); ok {
			w.BytesPerLease = &leased.Median
		}
	}
	if f := r.measured(idleUsed); f != nil {
		w.BytesPerIdleQueue = &f.Value.Median
	}
	return w
}

// Keys of figures that are asked for.
const (
	batch64      = "batch/batch 64/" + goroutines
	depthZero    = "depth/0 ready/" + goroutines
	depthMillion = "depth/1,000,000 ready/" + goroutines
	readyCaller  = "memory/ready, caller ids/" + goroutines
	idleUsed     = "memory/idle queue, used by 100/" + goroutines
)

// measured returns a figure that has at least one round, or nil.
func (r *Report) measured(key string) *Figure {
	if f := r.figure(key); f != nil && f.Rounds > 0 {
		return f
	}
	return nil
}

func (r *Report) quotient(over, under string) (Range, bool) {
	a, b := r.measured(over), r.measured(under)
	if a == nil || b == nil {
		return Range{}, false
	}
	return divide(a.values, b.values), true
}

// Target is a bound that a figure should stay below.
type Target struct {
	What   string  `json:"what"`
	AtMost float64 `json:"at_most"`
	Unit   string  `json:"unit"`
	Value  Range   `json:"value"`
}

// finish compares what was measured with what was asked for.
func (r *Report) finish() {
	target := func(what string, atMost float64, unit string, v Range) {
		r.Targets = append(r.Targets, Target{what, atMost, unit, v})
	}
	toFloor := func(what, key string, atMost float64) {
		if f := r.measured(key); f != nil {
			target(what, atMost, "x floor", *f.Ratio)
		}
	}
	toOther := func(what, over, under string, atMost float64) {
		if q, ok := r.quotient(over, under); ok {
			target(what, atMost, "x", q)
		}
	}
	const one = lifecycleGroup + "/" + oneByOne + "/"
	toFloor("single puts, prefetch 256, caller ids", one+goroutines, 0.6)
	toFloor("the same, Lanes", one+lanes, 0.45)
	toFloor("batches of 64, caller ids", batch64, 0.25)
	toFloor("batches of 64, caller ids, Lanes", "batch/batch 64/"+lanes, 0.25)
	toFloor("batches of 64, broker ids", "batch/batch 64, broker ids/"+goroutines, 0.2)
	toFloor("batches of 64, broker ids, Lanes", "batch/batch 64, broker ids/"+lanes, 0.2)
	toFloor("prefetch 1", lifecycleGroup+"/prefetch 1/"+goroutines, 1.5)
	toFloor("prefetch 1, Lanes", lifecycleGroup+"/prefetch 1/"+lanes, 1.5)
	toFloor("confirmed put", "put/confirmed/"+goroutines, 2)
	toFloor("confirmed put, Lanes", "put/confirmed/"+lanes, 2)
	toFloor("1,000 queues, round-robin, Lanes", "queues/1,000, round-robin/"+lanes, 1.5)
	toOther("1,000 queues, bursts of 64, to one queue", "queues/1,000, bursts of 64/"+goroutines, one+goroutines, 1.3)
	toOther("1,000,000 ready to none, broker ids", depthMillion, depthZero, 1.3)
	toOther("touch, 1,000,000 leased to 1,000", "leases/touch, 1,000,000 leased/"+goroutines, "leases/touch, 1,000 leased/"+goroutines, 1.5)
	toOther("nack with delay, 1,000,000 leased to 1,000", "leases/nack in 1 h, 1,000,000 leased/"+goroutines, "leases/nack in 1 h, 1,000 leased/"+goroutines, 1.5)
	toOther("touch in no order, 1,000,000 leased to 1,000", "leases/touch in no order, 1,000,000 leased/"+goroutines, "leases/touch in no order, 1,000 leased/"+goroutines, 1.5)
	toOther("nack in no order, 1,000,000 leased to 1,000", "leases/nack in no order, 1,000,000 leased/"+goroutines, "leases/nack in no order, 1,000 leased/"+goroutines, 1.5)
	toOther("publish, 100,000 bindings to 10", "topics/100,000 bindings/"+goroutines, "topics/10 bindings/"+goroutines, 1.5)
	for _, n := range []string{"1,000,000", "100,000"} {
		f := r.measured("timers/" + n + " leases expire/" + goroutines)
		if f == nil {
			continue
		}
		target(n+" leases run out at once, each", 1000, "ns", f.Value)
		before, _ := f.more("others' p99 before")
		meanwhile, _ := f.more("others' p99 meanwhile")
		if before.Min > 0 {
			target("others' p99 meanwhile, to before", 1.5, "x", Range{meanwhile.Median / before.Median, meanwhile.Min / before.Max, meanwhile.Max / before.Min})
		}
	}
	counted := func(what, key string, atMost float64) {
		if f := r.measured(key); f != nil && f.Allocs >= 0 {
			target(what, atMost, "", Range{f.Allocs, f.Allocs, f.Allocs})
		}
	}
	counted("allocations a message, single puts", one+goroutines, 2)
	counted("allocations a message, batches of 64", batch64, 1)
	if f := r.measured(readyCaller); f != nil {
		target("bytes over the body, ready message", 200, "B", f.Value)
		if leased, ok := f.more("leased"); ok {
			target("bytes over the body, leased message", 300, "B", leased)
		}
	}
	if f := r.measured(idleUsed); f != nil {
		target("a queue used and empty again", 4096, "B", f.Value)
	}
	if f := r.measured("memory/idle queue, lean, used by 100/" + goroutines); f != nil {
		target("the same, lean", 2048, "B", f.Value)
	}
}
