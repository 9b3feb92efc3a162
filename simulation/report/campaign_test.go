package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/postroom/postroom/simulation"
)

func campaignOf(t *testing.T, jobs int) *simulation.CampaignResult {
	t.Helper()
	c := simulation.Standard().Campaign(simulation.Campaign{First: 1, Last: 300, Jobs: jobs, Cover: true})
	require.False(t, c.Failed())
	return c
}

// The figures of coverage depend on the seeds and not on how many runs go on at once, and
// they count what a campaign is known to meet.
func TestCoverageIsTheSameWithAnyJobs(t *testing.T) {
	one, two := campaignOf(t, 1), campaignOf(t, 2)
	assert.Equal(t, one.Cover.Met, two.Cover.Met)
	assert.Equal(t, one.Cover.First, two.Cover.First)
	assert.Equal(t, one.Cover.Faults, two.Cover.Faults)
	assert.Equal(t, one.TraceHash, two.TraceHash)
	met := one.Cover.Met
	assert.Positive(t, met["leased"]["expire"])
	assert.Positive(t, met["ready"]["stale"]+met["delayed"]["stale"], "a settle after its lease")
	assert.Less(t, met["leased"]["grant"], met["ready"]["grant"]/100, "but for items that are put twice under one name")
	seeds, pairs := one.Cover.Novelty()
	require.NotEmpty(t, seeds)
	assert.Len(t, one.Cover.First, pairs[len(pairs)-1])
	assert.IsIncreasing(t, seeds)
	assert.IsIncreasing(t, pairs)
}

// The page says what failed and what never came up, and what it is told of stays text.
func TestACampaignsPageSaysWhatIsWrong(t *testing.T) {
	c := campaignOf(t, 1)
	var b bytes.Buffer
	require.NoError(t, Campaign(&b, c, []string{"<b>a unicorn</b>"}, Options{}))
	assert.Contains(t, b.String(), "vacuous: never &lt;b&gt;a unicorn&lt;/b&gt;")
	assert.Contains(t, b.String(), `data-passed="false"`)

	c.Failures = []simulation.Result{{Err: "x", Plan: simulation.Plan{Seed: 77}}}
	c.Errors = 1
	b.Reset()
	require.NoError(t, Campaign(&b, c, nil, Options{}))
	assert.Contains(t, b.String(), "<li>seed 77: error//")
}

// The page opens from disk in a browser that reaches nothing, shows all that it is to
// show, and does not run out of its window.
func TestACampaignsPageInChromium(t *testing.T) {
	c := campaignOf(t, 2)
	var b bytes.Buffer
	require.NoError(t, Campaign(&b, c, simulation.MustHit, Options{}))
	for _, outside := range []string{"http://", "https://", "src=", "@import"} {
		assert.NotContains(t, b.String(), outside)
	}
	var saw struct {
		Title                                                string
		Hits, Rows, Columns, Filled, Faults, Failures, Curve int
		Tall                                                 float64
		Wide                                                 bool
		Loaded                                               int
	}
	lines := openInto(t, b.Bytes(), &saw)
	assert.Empty(t, strings.Join(lines, "\n"))
	filled, kinds := 0, map[string]bool{}
	for _, met := range c.Cover.Met {
		filled += len(met)
		for kind := range met {
			kinds[kind] = true
		}
	}
	assert.Equal(t, "standard: 300 seeds", saw.Title)
	assert.Equal(t, len(simulation.MustHit), saw.Hits)
	assert.Equal(t, len(simulation.MessageStates)+1, saw.Rows)
	assert.Equal(t, len(kinds)+1, saw.Columns)
	assert.Equal(t, filled, saw.Filled)
	assert.Equal(t, len(simulation.FaultKinds()), saw.Faults)
	assert.Zero(t, saw.Failures)
	assert.Greater(t, saw.Curve, 10)
	assert.Greater(t, saw.Tall, 100.0)
	assert.False(t, saw.Wide, "the page is wider than its window")
	assert.Zero(t, saw.Loaded, "it loads nothing")
}
