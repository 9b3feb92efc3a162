package ledger

// budget bounds retries to a share of successes (R9), in fixed windows that count
// from the ledger's start. A failed message that would become ready and finds it
// spent waits in line, counted as delayed, until a success or the next window
// makes room: it neither dies nor spins.
type budget struct {
	line      list
	end       int64 // of the window; 0 before the first use
	successes int
	retries   int
}

// budgeted reports whether there is a budget. With its defaults in place one that is on
// has a floor, and that is looked up faster than three numbers.
func (l *Ledger) budgeted() bool { return l.config.RetryBudget.Floor > 0 }

// roll begins the window that holds the ledger's clock.
func (b *budget) roll(l *Ledger) {
	if l.clock < b.end {
		return
	}
	w := int64(l.config.RetryBudget.Window)
	b.end = addSat(l.clock/w*w, w)
	b.successes, b.retries = 0, 0
}

func (b *budget) success(l *Ledger) {
	if l.budgeted() {
		b.roll(l)
		b.successes++
	}
}

func (b *budget) retry(l *Ledger) {
	if l.budgeted() {
		b.roll(l)
		b.retries++
	}
}

// room reports whether one more message may be retried in this window.
func (b *budget) room(l *Ledger) bool {
	b.roll(l)
	return float64(b.retries) < l.config.RetryBudget.Ratio*float64(b.successes)+float64(l.config.RetryBudget.Floor)
}

// retryPlace says where a failed message goes whose time has come: to its lane, or
// behind those that wait for the budget.
func (l *Ledger) retryPlace() place {
	if l.budgeted() && (l.budget.line.first != nil || !l.budget.room(l)) {
		return toBudget
	}
	return toLane
}

// wait puts a message in the budget's line.
func (l *Ledger) wait(e *entry) {
	l.budget.roll(l) // the window's end is what wakes it
	e.state = waiting
	l.delayedN++
	l.budget.line.push(e)
}

// releaseWaiting makes ready as many as there is room for, first in first out.
func (l *Ledger) releaseWaiting() {
	for e := l.budget.line.first; e != nil && l.budget.room(l); e = l.budget.line.first {
		l.retried(e)
	}
}

// retried is the transition from waiting to ready.
func (l *Ledger) retried(e *entry) {
	if l.journal {
		l.record(Record{Kind: RecordRetried, Number: e.number})
	}
	l.unplace(e)
	l.budget.retry(l)
	l.makeReady(e)
}

// budgetOnTime settles all that is due before a success is counted: behind, the
// success would fall into a window in which failures are yet to be weighed.
func (l *Ledger) budgetOnTime() {
	if l.behind && l.budgeted() {
		l.catchUp()
	}
}
