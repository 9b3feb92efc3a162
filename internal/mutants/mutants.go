// Package mutants is the zoo: planted bugs that the simulation must find, so that we
// know what its silence is worth.
//
//	zoo.txt ──▶ All ──▶ Overlay ──▶ go build -overlay ──▶ a program with all of them
//	                                                       │ POSTROOM_MUTANT=name
//	                                                       ▼
//	                                            exactly one of them is awake
//
// No bug is in the module's own files, nor is any hook for one: an overlay replaces files
// for one build, and what is built otherwise has nothing of it. See
// docs/decisions/0013-mutants-are-an-overlay.md.
package mutants

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Environment names the variable that wakes a mutant in a program built with them.
const Environment = "POSTROOM_MUTANT"

//go:embed zoo.txt
var zoo string

// Mutant is one planted bug.
type Mutant struct {
	// Name is what it is called by, in small letters and hyphens.
	Name string
	// Breaks is the invariant or liveness rule that it breaks, such as I7 or L3.
	Breaks string
	// About says what it does wrong, in one sentence.
	About string

	hunks []hunk
}

// hunk is one place of a file.
type hunk struct {
	file     string // slash-separated, from the module's root
	old, new string
}

// All returns the zoo in its own order.
func All() []Mutant {
	all, err := parse(zoo)
	if err != nil {
		panic(err) // it is part of the program, and tested
	}
	return all
}

// parse reads a zoo. Errors name the line.
func parse(text string) ([]Mutant, error) {
	var all []Mutant
	var m *Mutant
	var h *hunk
	file := ""
	for i, line := range strings.Split(text, "\n") {
		bad := func(what string) error { return fmt.Errorf("mutants: line %d: %s: %q", i+1, what, line) }
		switch {
		case strings.HasPrefix(line, "## "):
			words := strings.Fields(line[3:])
			if len(words) != 2 {
				return nil, bad("want a name and an invariant")
			}
			if slices.ContainsFunc(all, func(m Mutant) bool { return m.Name == words[0] }) {
				return nil, bad("the name is there already")
			}
			all = append(all, Mutant{Name: words[0], Breaks: words[1]})
			m, h, file = &all[len(all)-1], nil, ""
		case m == nil:
			if line != "" && !strings.HasPrefix(line, "#") {
				return nil, bad("want ## before anything else")
			}
		case strings.HasPrefix(line, "--- "):
			file = line[4:]
			m.hunks = append(m.hunks, hunk{file: file})
			h = &m.hunks[len(m.hunks)-1]
		case line == "@@" && file != "":
			m.hunks = append(m.hunks, hunk{file: file})
			h = &m.hunks[len(m.hunks)-1]
		case line == "":
			h = nil
		case h == nil && file == "":
			m.About = strings.TrimSpace(m.About + " " + line)
		case h == nil:
			return nil, bad("a change goes on behind an empty line")
		default:
			rest := line[1:] + "\n"
			switch line[0] {
			case ' ':
				h.old += rest
				h.new += rest
			case '-':
				h.old += rest
			case '+':
				h.new += rest
			default:
				return nil, bad("want a line that begins with a blank, - or +")
			}
		}
	}
	for _, m := range all {
		if m.About == "" || len(m.hunks) == 0 {
			return nil, fmt.Errorf("mutants: %s says nothing or changes nothing", m.Name)
		}
	}
	return all, nil
}

// planted is the file that each changed package gets.
const planted = `package %s

import "os"

var mutant = os.Getenv(%q)

// planted reports whether this mutant is awake.
func planted(name string) bool { return mutant == name }
`

// plantedFile is its name, which no file of the module has.
const plantedFile = "zz_planted.go"

// apply returns the changed files by their path from the module's root. read returns a
// file as it is. Errors: those of read, and a place that is not there exactly once.
func apply(all []Mutant, read func(file string) (string, error)) (map[string]string, error) {
	changed := map[string]string{}
	var broken []error
	for _, m := range all {
		for _, h := range m.hunks {
			text, ok := changed[h.file]
			if !ok {
				var err error
				if text, err = read(h.file); err != nil {
					return nil, fmt.Errorf("mutants: %w", err)
				}
			}
			if n := places(text, h.old); n != 1 {
				broken = append(broken, fmt.Errorf("mutants: %s no longer fits: the place is %d times in %s:\n%s", m.Name, n, h.file, h.old))
				continue
			}
			changed[h.file] = strings.TrimPrefix(strings.Replace("\n"+text, "\n"+h.old, "\n"+h.new, 1), "\n")
		}
	}
	for _, file := range slices.Collect(maps.Keys(changed)) {
		dir := path.Dir(file)
		changed[path.Join(dir, plantedFile)] = fmt.Sprintf(planted, path.Base(dir), Environment)
	}
	return changed, errors.Join(broken...)
}

// places counts where the lines of old are in text.
func places(text, old string) int {
	n := 0
	for text = "\n" + text; ; n++ {
		i := strings.Index(text, "\n"+old)
		if i < 0 {
			return n
		}
		text = text[i+1:]
	}
}

// Overlay writes the changed files into dir, and with them the file that `go build
// -overlay` takes; it returns that file's name. module is the root of the module's
// source. Errors: those of the file system, and mutants whose place is not in the
// source any more.
func Overlay(module, dir string) (string, error) {
	changed, err := apply(All(), func(file string) (string, error) {
		text, err := os.ReadFile(filepath.Join(module, filepath.FromSlash(file)))
		return string(text), err
	})
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for i, file := range slices.Sorted(maps.Keys(changed)) {
		name := filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(name, []byte(changed[file]), 0o600); err != nil {
			return "", fmt.Errorf("mutants: %w", err)
		}
		replace[filepath.Join(module, filepath.FromSlash(file))] = name
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", fmt.Errorf("mutants: %w", err)
	}
	name := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		return "", fmt.Errorf("mutants: %w", err)
	}
	return name, nil
}
