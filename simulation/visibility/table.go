package visibility

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// WriteText writes the table as the document has it, and below it what became of the
// rest. Errors: those of w.
func (t Table) WriteText(w io.Writer) error {
	return write(w, fmt.Sprintf("seed %d: ", t.Seed), []Table{t})
}

// WriteRanges writes the same table for many seeds: each figure as its least, median
// and most, where they differ. Errors: those of w, and no tables.
func WriteRanges(w io.Writer, tables []Table) error {
	if len(tables) == 0 {
		return errors.New("visibility: no tables to write")
	}
	return write(w, fmt.Sprintf("%d seeds, least/median/most: ", len(tables)), tables)
}

// column is one figure of each row.
type column struct {
	name   string
	figure func(r *Row) int
	// onlyLetters: a plain channel has no such figure.
	onlyLetters bool
}

// parts are the two halves of the table.
var parts = [...][]column{
	{
		{name: "after 10s"},
		{name: "processed", figure: func(r *Row) int { return r.Processed }},
		{name: "lost silently", figure: func(r *Row) int { return r.Lost }},
		{name: "dead-lettered", figure: func(r *Row) int { return r.Dead }, onlyLetters: true},
		{name: "on their way", figure: func(r *Row) int { return r.Underway }},
		{name: "processed twice", figure: func(r *Row) int { return r.Twice }},
		{name: "late acks", figure: func(r *Row) int { return r.LateAcks }, onlyLetters: true},
	},
	{
		{name: "drained"},
		{name: "processed", figure: func(r *Row) int { return r.DrainedProcessed }},
		{name: "lost silently", figure: func(r *Row) int { return r.HungLost + r.OtherLost }},
		{name: "dead-lettered", figure: func(r *Row) int { return r.HungDead + r.OtherDead }, onlyLetters: true},
		{name: "at ms", figure: func(r *Row) int { return int(r.Drained / time.Millisecond) }},
		{name: "processed twice", figure: func(r *Row) int { return r.DrainedTwice }},
		{name: "late acks", figure: func(r *Row) int { return r.DrainedLateAcks }, onlyLetters: true},
	},
}

func write(w io.Writer, which string, tables []Table) error {
	var slow []int
	for i := range tables {
		slow = append(slow, tables[i].Slow)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s%d items, %d workers; %d hang until a timeout of %v, %s are slow (%v); %d attempts\n",
		which, Items, Workers, HungItems, ItemTimeout, spread(slow), SlowWork, MaxAttempts)
	for _, columns := range parts {
		b.WriteByte('\n')
		tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		for i, c := range columns {
			fmt.Fprint(tw, c.name, endCell(i, columns))
		}
		for row := range tables[0].Rows {
			for i, c := range columns {
				fmt.Fprint(tw, c.text(tables, row), endCell(i, columns))
			}
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// endCell leaves no blanks at the end of a line.
func endCell(i int, columns []column) string {
	if i == len(columns)-1 {
		return "\n"
	}
	return "\t"
}

// text is what stands in the column for one set-up.
func (c *column) text(tables []Table, row int) string {
	switch first := &tables[0].Rows[row]; {
	case c.figure == nil:
		return first.Setup
	case c.onlyLetters && !first.Letters:
		return "-"
	}
	var values []int
	for i := range tables {
		values = append(values, c.figure(&tables[i].Rows[row]))
	}
	return spread(values)
}

// spread is least, median and most, or the one value there is.
func spread(values []int) string {
	values = slices.Sorted(slices.Values(values))
	least, most := values[0], values[len(values)-1]
	if least == most {
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%d/%d/%d", least, values[len(values)/2], most)
}

// Facts says which of the document's findings t does not show, all of them joined,
// or nil:
//
//   - the plain channel loses every hung item, and nothing else;
//   - leases lose none, with and without heartbeats;
//   - without heartbeats every slow item runs twice, and its first ack is late;
//   - heartbeats bring both to 0;
//   - all others are processed, and after the drain every hung item is dead.
func Facts(t Table) error {
	if len(t.Rows) != setups {
		return fmt.Errorf("seed %d: the table has %d rows, want %d", t.Seed, len(t.Rows), setups)
	}
	var broken []error
	expect := func(row *Row, what string, got, want int) {
		if got != want {
			broken = append(broken, fmt.Errorf("seed %d, %s: %s %d, want %d", t.Seed, row.Setup, what, got, want))
		}
	}
	plain, leases, beats := &t.Rows[Plain], &t.Rows[Leases], &t.Rows[Heartbeats]
	expect(plain, "lost", plain.Lost, HungItems)
	expect(plain, "hung items lost in the end", plain.HungLost, HungItems)
	expect(plain, "processed twice", plain.DrainedTwice, 0)
	for _, row := range []*Row{leases, beats} {
		expect(row, "lost", row.Lost, 0)
		expect(row, "hung items lost in the end", row.HungLost, 0)
		expect(row, "hung items dead in the end", row.HungDead, HungItems)
	}
	for _, row := range []*Row{plain, leases, beats} {
		// By 10 s with leases alone, workers may still be at it: see the package comment.
		expect(row, "processed in the end", row.DrainedProcessed, Items-HungItems)
		expect(row, "others lost or dead", row.OtherLost+row.OtherDead, 0)
	}
	expect(leases, "processed twice", leases.DrainedTwice, t.Slow)
	expect(leases, "late acks", leases.DrainedLateAcks, t.Slow)
	expect(beats, "processed twice", beats.DrainedTwice, 0)
	expect(beats, "late acks", beats.DrainedLateAcks, 0)
	return errors.Join(broken...)
}
