package visibility

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
	"time"
)

func tables(t *testing.T, seeds uint64) []Table {
	t.Helper()
	var all []Table
	for seed := uint64(1); seed <= seeds; seed++ {
		table, err := Run(seed)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, table)
	}
	return all
}

// TestTheDocumentsFindingsHoldForEverySeed is the experiment a hundred times, and its
// figures are those of the README.
func TestTheDocumentsFindingsHoldForEverySeed(t *testing.T) {
	if testing.Short() || raceOn {
		for _, table := range tables(t, 10) {
			if err := Facts(table); err != nil {
				t.Error(err)
			}
		}
		return
	}
	all := tables(t, 100)
	for _, table := range all {
		if err := Facts(table); err != nil {
			t.Error(err)
		}
	}
	var text bytes.Buffer
	if err := WriteRanges(&text, all); err != nil {
		t.Fatal(err)
	}
	isInReadme(t, text.String())

	// The document's one run must be one that ours could be.
	var slow, dead bool
	for _, table := range all {
		slow = slow || table.Slow == 54
		dead = dead || table.Rows[Heartbeats].Dead == 4
	}
	if !slow || !dead {
		t.Errorf("none of 100 seeds has the document's figures: 54 slow items %v, 4 dead by 10 s %v", slow, dead)
	}
}

// To accept other figures run
//
//	go test ./simulation/visibility -rewrite
//
// and read the diff: it is what the documentation says of leases.
var rewrite = flag.Bool("rewrite", false, "write the measured tables into README.md")

// isInReadme compares the fenced block of README.md that begins like text.
func isInReadme(t *testing.T, text string) {
	t.Helper()
	file, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := string(file)
	if strings.Contains(readme, "```\n"+text+"```\n") {
		return
	}
	which, _, _ := strings.Cut(text, ":")
	from := strings.Index(readme, "```\n"+which+":")
	if from < 0 || !*rewrite {
		t.Errorf("README.md does not show what was measured:\n%s", text)
		return
	}
	from += len("```\n")
	length := strings.Index(readme[from:], "```")
	if err := os.WriteFile("README.md", []byte(readme[:from]+text+readme[from+length:]), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestEqualSeedsGiveEqualTables(t *testing.T) {
	var texts [2]strings.Builder
	for i := range texts {
		table, err := Run(7)
		if err != nil {
			t.Fatal(err)
		}
		if err := table.WriteText(&texts[i]); err != nil {
			t.Fatal(err)
		}
	}
	if texts[0].String() != texts[1].String() {
		t.Errorf("seed 7 gave\n%s\nand then\n%s", &texts[0], &texts[1])
	}
	isInReadme(t, texts[0].String())
}

// Without heartbeats too no work is done twice, and no ack is late, when handlers end
// with the context that ends with their lease: what the document could not measure.
func TestAHandlerThatHeedsItsContextIsNeverLate(t *testing.T) {
	for seed := uint64(1); seed <= 10; seed++ {
		var row Row
		if err := runLeases(seed, drawLoad(seed), &row, leaseSetup{heeds: true}); err != nil {
			t.Fatal(err)
		}
		if row.DrainedTwice != 0 || row.DrainedLateAcks != 0 || row.DrainedProcessed != Items-HungItems || row.HungDead != HungItems {
			t.Errorf("seed %d: %+v, want nothing twice or late, %d processed and %d dead", seed, row, Items-HungItems, HungItems)
		}
		if row.Drained > 6*time.Second { // 10 s and more for the deaf ones
			t.Errorf("seed %d: drained after %v, want the workers back at once", seed, row.Drained)
		}
	}
}

// Each figure that a finding is about must break it.
func TestFactsNoticeWhatIsWrong(t *testing.T) {
	good, err := Run(3)
	if err != nil {
		t.Fatal(err)
	}
	if err := Facts(good); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Table){
		"the plain channel keeps a hung item": func(t *Table) { t.Rows[Plain].HungLost-- },
		"the plain channel loses more":        func(t *Table) { t.Rows[Plain].Lost++ },
		"a lease loses an item":               func(t *Table) { t.Rows[Leases].Lost++ },
		"a heartbeat loses an item":           func(t *Table) { t.Rows[Heartbeats].HungLost++ },
		"no duplicates without heartbeats":    func(t *Table) { t.Rows[Leases].DrainedTwice = 0 },
		"no late acks without heartbeats":     func(t *Table) { t.Rows[Leases].DrainedLateAcks = 0 },
		"a duplicate with heartbeats":         func(t *Table) { t.Rows[Heartbeats].DrainedTwice = 1 },
		"a late ack with heartbeats":          func(t *Table) { t.Rows[Heartbeats].DrainedLateAcks = 1 },
		"a hung item lives on":                func(t *Table) { t.Rows[Heartbeats].HungDead-- },
		"another item dies":                   func(t *Table) { t.Rows[Leases].OtherDead++ },
		"a set-up is missing":                 func(t *Table) { t.Rows = t.Rows[:2] },
	} {
		bad := good
		bad.Rows = append([]Row(nil), good.Rows...)
		spoil(&bad)
		if Facts(bad) == nil {
			t.Errorf("%s: Facts finds nothing", name)
		}
	}
}
