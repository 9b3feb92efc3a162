package main

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBenchRefusesWhatItCannotMeasure(t *testing.T) {
	for _, row := range []struct{ args, want string }{
		{"--rounds 0", "--rounds must be at least 1, not 0"},
		{"--rounds -3", "--rounds must be at least 1, not -3"},
		{"--messages 0", "--messages must be at least 10000, not 0"},
		{"--only nothing", `there is no part "nothing"; there are lifecycle, put, `},
		{"--only=", "--only names no part"},
		{"--html=", "--html needs the name of a file"},
		{"--html /no/such/directory/page.html --only put", "--html"},
		{"--fast", "unknown flag: --fast"},
		{"--rounds many", "invalid argument"},
		{"more", "unknown command"},
	} {
		r := runPostroom(t, "", append([]string{"bench"}, strings.Fields(row.args)...)...)
		assert.Equal(t, exitUsage, r.status, row.args)
		assert.Contains(t, r.stderr, row.want, row.args)
		assert.Contains(t, r.stderr, "hint: ", row.args)
		assert.Empty(t, r.stdout, row.args)
	}
}

func TestBenchEndsWithALineOfFiguresAndWritesAPage(t *testing.T) {
	name := inTemp(t, "page.html")
	r := runPostroom(t, "", "bench", "--only", "put", "--rounds", "1", "--messages", "10000", "--json", "--html", name)
	require.Equal(t, exitDone, r.status, r.stderr)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	var figures map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &figures))
	assert.Positive(t, figures["put_ratio"])
	assert.Positive(t, figures["put_floor_ns"])
	assert.Nil(t, figures["lifecycle_ns"], "it was not asked for")
	assert.Contains(t, r.stdout, "confirmed put")

	page := readFile(t, name)
	assert.Contains(t, page, "Chart.js v4")
	assert.Contains(t, page, "The MIT License")
	assert.Empty(t, regexp.MustCompile(`(?i)<[^>]+\b(src|href)\s*=`).FindAllString(page[strings.Index(page, "<body>"):strings.Index(page, "<script>")], -1), "it needs nothing from elsewhere")
}
