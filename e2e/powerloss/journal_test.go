package powerloss

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Each file system keeps what it must, and nothing else.
func TestWhatAPowerCutLeaves(t *testing.T) {
	t.Parallel()
	const dir, old, next = 2, 3, 4
	made := []change{
		{kind: created, node: root, name: "dir", child: dir, dir: true},
		{kind: created, node: dir, name: "file", child: old},
		{kind: written, node: old, data: []byte("old")},
		{kind: synced, node: old, began: 3},
	}
	and := func(before []change, more ...change) []change { return slices.Concat(before, more) }
	replaced := and(made,
		change{kind: created, node: dir, name: "new", child: next},
		change{kind: written, node: next, data: []byte("new")},
		change{kind: renamed, node: dir, name: "new", child: next, to: dir, toName: "file", replaces: true},
	)
	const gone = "-"
	tests := []struct {
		name    string
		changes []change
		want    map[string]string // what dir/file holds, by file system
	}{
		{"written, not fsynced", made[:3], map[string]string{"ordered": gone, "eager": "", "unordered": ""}},
		{"fsynced", made, map[string]string{"ordered": "old", "eager": "old", "unordered": "old"}},
		{"replaced", replaced, map[string]string{"ordered": "old", "eager": "new", "unordered": ""}},
		{
			"replaced, and another file fsynced", and(replaced, change{kind: synced, node: root, began: len(replaced)}),
			map[string]string{"ordered": "new", "eager": "new", "unordered": ""},
		},
		{
			"written while it was fsynced", and(made[:3], change{kind: written, node: old, offset: 3, data: []byte("er")}, change{kind: synced, node: old, began: 3}),
			map[string]string{"ordered": "old", "eager": "old", "unordered": "old"},
		},
		{
			"shortened", and(made, change{kind: truncated, node: old, offset: 1}),
			map[string]string{"ordered": "old", "eager": "o", "unordered": "o"},
		},
		{
			"removed", and(made, change{kind: removed, node: dir, name: "file"}),
			map[string]string{"ordered": "old", "eager": gone, "unordered": gone},
		},
		{
			"removed, and back from its second name", and(made,
				change{kind: linked, node: root, name: "second", child: old},
				change{kind: removed, node: dir, name: "file"},
				change{kind: renamed, node: root, name: "second", child: old, to: dir, toName: "file"}),
			map[string]string{"ordered": "old", "eager": "old", "unordered": "old"},
		},
	}
	systems := map[string]filesystem{
		"ordered": {orderedRename: true}, "eager": {namesAtOnce: true, orderedRename: true}, "unordered": {namesAtOnce: true},
	}
	for _, test := range tests {
		for name, want := range test.want {
			into := t.TempDir()
			if err := systems[name].left(test.changes).save(into); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(into, "dir", "file"))
			if os.IsNotExist(err) {
				got = []byte(gone)
			}
			if string(got) != want {
				t.Errorf("%s, %s: got %q, want %q", test.name, name, got, want)
			}
		}
	}
}
