package postroom_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// publicPackages are what an embedder can import and read about.
var publicPackages = []string{"worker", "worker/workertest", ".", "messages", "simulation", "supervisor", "router", "actors"}

// selfEvident are methods whose name and signature are their contract, as everywhere.
var selfEvident = []string{"Error", "String", "Unwrap"}

// Each exported identifier says what it is for: on its own line, or in the comment
// of the group that it stands in.
func TestEveryExportedIdentifierHasADocComment(t *testing.T) {
	for _, dir := range publicPackages {
		undocumented, seen, packageDoc := undocumentedIn(t, dir)
		assert.True(t, packageDoc, "package in %s has no package comment", dir)
		assert.Greater(t, seen, 3, "exported identifiers looked at in %s", dir)
		for _, name := range undocumented {
			t.Errorf("%s has no doc comment", name)
		}
	}
}

func undocumentedIn(t *testing.T, dir string) (undocumented []string, seen int, packageDoc bool) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	fset := token.NewFileSet()
	look := func(pos token.Pos, name string, docs ...*ast.CommentGroup) {
		seen++
		for _, doc := range docs {
			if doc.Text() != "" {
				return
			}
		}
		at := fset.Position(pos)
		undocumented = append(undocumented, at.String()+": "+name)
	}
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(fset, filepath.Join(dir, entry.Name()), nil, parser.ParseComments)
		require.NoError(t, err)
		packageDoc = packageDoc || file.Doc.Text() != ""
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if !d.Name.IsExported() || slices.Contains(selfEvident, d.Name.Name) {
					continue
				}
				name := d.Name.Name
				if d.Recv != nil {
					receiver := receiverName(d.Recv.List[0].Type)
					if !ast.IsExported(receiver) {
						continue
					}
					name = receiver + "." + name
				}
				look(d.Pos(), name, d.Doc)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						if spec.Name.IsExported() {
							look(spec.Pos(), spec.Name.Name, spec.Doc, spec.Comment, d.Doc)
						}
					case *ast.ValueSpec:
						for _, name := range spec.Names {
							if name.IsExported() {
								look(name.Pos(), name.Name, spec.Doc, spec.Comment, d.Doc)
							}
						}
					}
				}
			}
		}
	}
	return undocumented, seen, packageDoc
}
