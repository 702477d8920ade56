package embedded_test

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus/embedded"
	"flightline/shared/testenv"
)

// blockBytes is more than a block holds, which is 4 MB.
const blockBytes = 5 << 20

// newest starts a server that leaves fsync to the barrier, with a stream K that has the
// newest message of each subject.
func newest(t *testing.T, d *disk) (s *embedded.Server, js jetstream.JetStream, store string) {
	t.Helper()
	store = t.TempDir()
	s = start(t, embedded.Config{Dir: store, Barrier: true})
	s.Barrier().SetFsync(d.fsync)
	js = streamsOf(t, dial(t, s))
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "K", Subjects: []string{"k.>"}, MaxMsgsPerSubject: 1}); err != nil {
		t.Fatal(err)
	}
	return s, js, store
}

func streamsOf(t *testing.T, nc *nats.Conn) jetstream.JetStream {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func publish(t *testing.T, js jetstream.JetStream, subject string, data []byte) {
	t.Helper()
	if _, err := js.Publish(t.Context(), subject, data); err != nil {
		t.Fatal(err)
	}
}

// fillBlocks replaces the message of a subject until it is in another block.
func fillBlocks(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	large := make([]byte, 512<<10)
	for range blockBytes / len(large) {
		publish(t, js, "k.filling", large)
	}
}

// subjects are those of fillFirstBlock.
const subjects = 6

// fillFirstBlock stores 512 KB under each of the subjects, all in the first block.
func fillFirstBlock(t *testing.T, js jetstream.JetStream) {
	t.Helper()
	for i := range subjects {
		publish(t, js, "k."+strconv.Itoa(i), bytes.Repeat([]byte("o"), 512<<10))
	}
}

// wantAll checks that each of the subjects has a message.
func wantAll(t *testing.T, got map[string][]byte) {
	t.Helper()
	for i := range subjects {
		if subject := "k." + strconv.Itoa(i); len(got[subject]) == 0 {
			t.Errorf("%s is lost", subject)
		}
	}
}

func syncK(t *testing.T, s *embedded.Server) {
	t.Helper()
	if err := s.Barrier().Sync(t.Context(), "K"); err != nil {
		t.Fatal(err)
	}
}

// powerLoss copies the store as a power cut at this moment leaves it in the worst case: all
// names are on the disk, and of the content what was fsynced.
func (d *disk) powerLoss(t *testing.T, store string) string {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	safe := slices.Collect(maps.Values(d.safe))
	left := filepath.Join(t.TempDir(), "[left]") // a folder may have any name
	copies := map[string]fs.FileInfo{}           // with all their names
	err := filepath.WalkDir(store, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(left, path[len(store):])
		if e.IsDir() {
			return os.MkdirAll(to, 0o700)
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		for name, other := range copies {
			if os.SameFile(info, other) {
				return os.Link(name, to)
			}
		}
		copies[to] = info
		size := int64(0)
		for _, was := range safe {
			if os.SameFile(was, info) {
				size = max(size, was.Size())
			}
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data[:size], 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// held are the messages of K in a store, by subject.
func held(t *testing.T, store string) map[string][]byte {
	t.Helper()
	js := streamsOf(t, dial(t, start(t, embedded.Config{Dir: store, Barrier: true, Mend: true})))
	k, err := js.Stream(t.Context(), "K")
	if err != nil {
		t.Fatal(err)
	}
	info, err := k.Info(t.Context(), jetstream.WithSubjectFilter(">"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for subject := range info.State.Subjects {
		m, err := k.GetLastMsgForSubject(t.Context(), subject)
		if err != nil {
			t.Fatal(err)
		}
		all[subject] = m.Data
	}
	return all
}

func retained(t *testing.T, store string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(store, "jetstream", "$G", "streams", "K", "retained", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestAPowerLossDoesNotTakeWhatIsReplaced(t *testing.T) {
	d := &disk{}
	s, js, store := newest(t, d)
	publish(t, js, "k.a", []byte("old"))
	syncK(t, s)
	fillBlocks(t, js)
	syncK(t, s)
	before := blocks(t, store, "K")
	publish(t, js, "k.a", []byte("new"))
	if after := blocks(t, store, "K"); len(after) >= len(before) {
		t.Fatalf("got blocks %v, want one of %v to be removed", after, before)
	}
	if got := held(t, d.powerLoss(t, store))["k.a"]; string(got) != "old" {
		t.Errorf("before the replacement is on the disk: got %q, want the old message", got)
	}
	syncK(t, s)
	if got := held(t, d.powerLoss(t, store))["k.a"]; string(got) != "new" {
		t.Errorf("after that: got %q, want the new message", got)
	}
	if got := retained(t, store); len(got) != len(blocks(t, store, "K")) {
		t.Errorf("got second names %v, want those of the blocks alone", got)
	}
}

// The smaller block that the server renames over another is not fsynced, and lacks what was
// replaced.
func TestAPowerLossDoesNotTakeWhatWasInACompactedBlock(t *testing.T) {
	d := &disk{}
	s, js, store := newest(t, d)
	fillFirstBlock(t, js)
	syncK(t, s)
	first := blocks(t, store, "K")[0]
	before, err := os.Stat(first)
	if err != nil {
		t.Fatal(err)
	}
	fillBlocks(t, js)
	for i := 1; i < subjects; i++ { // the first one keeps the block
		publish(t, js, "k."+strconv.Itoa(i), []byte("new"))
	}
	if after, err := os.Stat(first); err != nil || os.SameFile(before, after) {
		t.Fatalf("got the same first block, %v; want a smaller one in its place", err)
	}
	wantAll(t, held(t, d.powerLoss(t, store)))
	syncK(t, s)
	got := held(t, d.powerLoss(t, store))
	for i := 1; i < subjects; i++ {
		if subject := "k." + strconv.Itoa(i); string(got[subject]) != "new" {
			t.Errorf("after a round: got %.10q in %s, want the new message", got[subject], subject)
		}
	}
}

// What a round answers for may be replaced while it runs, in a block that has no second name
// yet: the smaller block may be all that is left of it, and is not on the disk.
func TestAPowerLossDoesNotTakeWhatIsReplacedDuringARound(t *testing.T) {
	tests := map[string]func(fsynced string) bool{
		"while blocks are fsynced":  func(fsynced string) bool { return filepath.Ext(fsynced) == ".blk" },
		"before their second names": func(fsynced string) bool { return filepath.Base(fsynced) == "msgs" },
	}
	for name, moment := range tests {
		t.Run(name, func(t *testing.T) {
			d := &disk{}
			s, js, store := newest(t, d)
			fillFirstBlock(t, js)
			fillBlocks(t, js)
			var once sync.Once
			d.during(func(fsynced string) {
				if !moment(fsynced) {
					return
				}
				once.Do(func() {
					for i := 1; i < subjects; i++ {
						if _, err := js.Publish(t.Context(), "k."+strconv.Itoa(i), []byte("new")); err != nil {
							t.Error(err)
						}
					}
				})
			})
			syncK(t, s)
			wantAll(t, held(t, d.powerLoss(t, store)))
		})
	}
}

// A stream that was made after the start is swept too.
func TestWhatNoOneWaitsForIsOnTheDiskAfterASweep(t *testing.T) {
	t.Parallel()
	d := &disk{}
	_, js, store := newest(t, d)
	publish(t, js, "k.a", []byte("a"))
	testenv.Eventually(t, "all of K is on the disk", func() bool { return len(d.unsafe(t, store, "K")) == 0 })
	publish(t, js, "k.a", []byte("b"))
	testenv.Eventually(t, "all of K is on the disk again", func() bool { return len(d.unsafe(t, store, "K")) == 0 })
}

// No one waits at the barrier for a removal alone. A crash much later must not undo it.
func TestARemovalThatIsNotWaitedForIsNotUndoneForLong(t *testing.T) {
	t.Parallel()
	d := &disk{}
	s, js, store := newest(t, d)
	publish(t, js, "k.a", []byte("old"))
	fillBlocks(t, js)
	syncK(t, s)
	before := len(retained(t, store))
	k, err := js.Stream(t.Context(), "K")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Purge(t.Context(), jetstream.WithPurgeSubject("k.a")); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "the second name goes", func() bool { return len(retained(t, store)) < before })
	if got := held(t, d.powerLoss(t, store)); got["k.a"] != nil {
		t.Errorf("got %q, want no message, as it was deleted", got["k.a"])
	}
}

// A round that cannot give second names fails, and the next one tries again, also if the
// blocks are the same.
func TestARoundWithoutSecondNamesFails(t *testing.T) {
	s, js, store := newest(t, &disk{})
	stream := filepath.Join(store, "jetstream", "$G", "streams", "K")
	publish(t, js, "k.a", []byte("old"))
	syncK(t, s)
	inTheWay := filepath.Join(stream, "retained")
	if err := errors.Join(os.RemoveAll(inTheWay), os.WriteFile(inTheWay, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	fillBlocks(t, js)
	longAgo := time.Now().Add(-time.Hour).Truncate(time.Second).Add(time.Microsecond)
	if err := os.Chtimes(filepath.Join(stream, "msgs"), longAgo, longAgo); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Barrier().Sync(t.Context(), "K"); err == nil {
			t.Error("got no error")
		}
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	syncK(t, s)
	if got := retained(t, store); len(got) == 0 {
		t.Error("got no second name of the new block")
	}
}

func TestAStopLeavesNoSecondNames(t *testing.T) {
	s, js, store := newest(t, &disk{})
	publish(t, js, "k.a", []byte("old"))
	syncK(t, s)
	if got := retained(t, store); len(got) == 0 {
		t.Fatal("got no second name while it runs")
	}
	s.Stop()
	if got := retained(t, store); len(got) > 0 {
		t.Errorf("got %v, want none", got)
	}
	if _, err := os.Stat(filepath.Join(store, "jetstream", "$G", "streams", "K", "retained")); err != nil {
		t.Errorf("got %v, want the folder kept: a start on a full disk could not make it", err)
	}
}

func TestAStartUndoesRemovals(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		// files have a content; those with the same one are the same file. Beside them there
		// are settings, unless the stream is deleted.
		files map[string]string
		back  []string
		want  string // in 1.blk
	}{
		"in place":                       {map[string]string{"msgs/1.blk": "a", "retained/1.blk.1": "a"}, nil, "a"},
		"removed":                        {map[string]string{"retained/1.blk.1": "a"}, []string{"msgs/1.blk"}, "a"},
		"replaced, no round has seen it": {map[string]string{"msgs/1.blk": "b", "retained/1.blk.1": "a"}, []string{"msgs/1.blk"}, "a"},
		"replaced, a round has seen it":  {map[string]string{"msgs/1.blk": "b", "retained/1.blk.9": "a", "retained/1.blk.10": "b"}, nil, "b"},
		"replaced twice":                 {map[string]string{"msgs/1.blk": "c", "retained/1.blk.9": "a", "retained/1.blk.10": "b"}, []string{"msgs/1.blk"}, "b"},
		"of a deleted stream":            {map[string]string{"retained/1.blk.1": "a"}, nil, ""},
		"without a second name":          {map[string]string{"msgs/1.blk": "a", "retained/notes": "x"}, nil, "a"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, retain := range []bool{true, false} {
				dir := t.TempDir()
				files := maps.Clone(test.files)
				if test.want != "" {
					files["meta.inf"] = "settings"
				}
				write(t, dir, files)
				back, err := embedded.UndoRemovals(dir, retain)
				if err != nil || !slices.Equal(back, test.back) {
					t.Errorf("got %v, %v put back, want %v", back, err, test.back)
				}
				if got, err := os.ReadFile(filepath.Join(dir, "msgs", "1.blk")); string(got) != test.want {
					t.Errorf("got %q, %v in the block, want %q", got, err, test.want)
				}
				names, err := filepath.Glob(filepath.Join(dir, "retained", "*"))
				if err != nil || (len(names) == 1) != (retain && test.want != "") {
					t.Errorf("retain %v: got second names %v, %v", retain, names, err)
				}
			}
		})
	}
}

// write makes the files of a stream's directory.
func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	first := map[string]string{}
	for _, sub := range []string{"msgs", "retained"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		var err error
		if other, ok := first[content]; ok {
			err = os.Link(other, path)
		} else {
			first[content], err = path, os.WriteFile(path, []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
