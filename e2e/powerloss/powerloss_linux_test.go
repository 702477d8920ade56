package powerloss

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"flightline/e2e/require"
	"flightline/shared/client"
	"flightline/shared/job"
	"flightline/shared/testenv/program"
)

func TestMain(m *testing.M) { program.Main(m) }

const (
	key  = "key-of-the-test-0123456789"
	jobs = 800 // that are accepted; half of them are worked off
	// clients is how many of each kind ask at a time.
	clients = 4
)

// input makes a job so large that blocks of the queue fill, and are compacted when
// most of their jobs are gone.
var input = strings.Repeat("x", 16<<10)

// A power cut at any instant takes back no answer: each job that was accepted is
// there, each result that was taken is kept, what is left is worked off, and
// endpoints and keys are as they were answered.
func TestAPowerCutTakesBackNoAnswer(t *testing.T) {
	t.Parallel()
	for _, sync := range []string{"group", "always"} {
		t.Run(sync, func(t *testing.T) {
			t.Parallel()
			l := record(t, sync)
			for _, fs := range filesystems() {
				for _, cut := range l.moments(fs) {
					t.Run(fmt.Sprintf("%s, %d of %d", fs.name, cut, l.ended), func(t *testing.T) {
						t.Parallel()
						s := l.restart(t, fs, cut)
						for _, lost := range l.lost(t, s, cut) {
							t.Error(lost)
						}
						if t.Failed() {
							s.dev.Tell()
							t.FailNow()
						}
						l.drain(t, s, cut, sync != "group" || fs.name != ordered.name)
						s.dev.Stop(program.StopWithin)
					})
				}
			}
		})
	}
}

// What is not promised is lost, so this test would see if what is promised were:
// with --sync interval what was not fsynced.
func TestAPowerCutTakesBackWhatIsNotPromised(t *testing.T) {
	t.Parallel()
	l := record(t, "interval")
	if lost := l.lost(t, l.restart(t, ordered, l.replaced()), l.replaced()); len(lost) == 0 {
		t.Error("got all that was answered, want some of it lost")
	}
}

var (
	// ordered and eager are ext4, which has the data of a file on the disk before a
	// name that replaces another: between two of its commits, and just after one.
	ordered = filesystem{name: "names with the next fsync", orderedRename: true}
	eager   = filesystem{name: "names at once", namesAtOnce: true, orderedRename: true}
	// patchy is ext4 that wrote some of the rest by itself.
	patchy = filesystem{name: "some writes by themselves", orderedRename: true, survives: func() bool { return rand.IntN(2) == 0 }}
	// unordered is a file system that promises nothing of the kind, such as XFS.
	unordered = filesystem{name: "names at once, in no order", namesAtOnce: true}
)

// filesystems are those on which nothing is to be lost.
func filesystems() []filesystem { return []filesystem{ordered, eager, patchy, unordered} }

// mounted is a disk in use.
type mounted struct {
	*disk
	dir string
}

func newDisk(t *testing.T) *mounted {
	t.Helper()
	dir := t.TempDir()
	d, server, err := mount(dir, 300*time.Microsecond)
	if err != nil {
		require.Skip(t, "fuse", "a file system cannot be mounted: "+err.Error())
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
		}
	})
	return &mounted{d, dir}
}

// ledger is what dev has answered, and when: the length of the journal then.
type ledger struct {
	sync         string
	disk         *disk
	began, ended int

	mu                 sync.Mutex
	accepted, finished map[job.ID]int
	made, deleted      map[string]int // endpoints
	keys               map[string]int
}

// recording lets one dev at a time have the machine while it is to be fast.
var recording sync.Mutex

// record has a dev on such a disk accept jobs and half of the results, and kills it.
func record(t *testing.T, sync string) *ledger {
	t.Helper()
	recording.Lock()
	defer recording.Unlock()
	d := newDisk(t)
	l := &ledger{
		sync: sync, disk: d.disk, accepted: map[job.ID]int{}, finished: map[job.ID]int{}, made: map[string]int{}, deleted: map[string]int{}, keys: map[string]int{},
	}
	s := startDev(t, d.dir, sync)
	if _, err := s.client.Endpoints().Create(t.Context(), client.EndpointSpec{ID: "ep", Lease: 10 * time.Second}); err != nil {
		t.Fatal(err)
	}
	s.token(t)
	l.began = d.length()
	s.together(t, clients, func(int) error {
		for range jobs / clients {
			j, err := s.client.Run(t.Context(), "ep", client.Request{Input: map[string]string{"text": input}})
			if err != nil {
				return err
			}
			note(l, l.accepted, j.ID)
		}
		return nil
	}, func(int) error {
		for range jobs / clients / 2 {
			id, err := s.take(t.Context())
			if err == nil {
				err = s.finish(t.Context(), id)
			}
			if err != nil {
				return err
			}
			note(l, l.finished, id)
		}
		return nil
	}, func(n int) error { return l.manage(t.Context(), s, n) })
	l.ended = d.length()
	s.dev.Kill()
	if l.replaced() == 0 || l.removed() == 0 {
		t.Fatal("no block was compacted, or none removed: the jobs are too few or too small")
	}
	t.Logf("%d changes, %d jobs accepted, %d finished", l.ended-l.began, len(l.accepted), len(l.finished))
	return l
}

// toDelete ends the ids of endpoints that are deleted.
const toDelete = "-deleted"

// manage makes two endpoints and a key, and deletes one of the endpoints. What is not
// answered in time, on a busy machine, is done again under another name.
func (l *ledger) manage(ctx context.Context, s *dev, n int) error {
	for try := 0; ; try++ {
		err := l.manageOnce(ctx, s, fmt.Sprintf("other-%d-%d", n, try))
		var refused *client.Error
		if err == nil || !errors.As(err, &refused) || !refused.Temporary() {
			return err
		}
	}
}

func (l *ledger) manageOnce(ctx context.Context, s *dev, name string) error {
	for _, id := range []string{name, name + toDelete} {
		if _, err := s.client.Endpoints().Create(ctx, client.EndpointSpec{ID: id}); err != nil {
			return err
		}
		note(l, l.made, id)
	}
	if err := s.client.Endpoints().Delete(ctx, name+toDelete, false); err != nil {
		return err
	}
	note(l, l.deleted, name+toDelete)
	made, err := s.client.Keys().Create(ctx, client.KeySpec{Name: name, Scopes: []string{"read:ep"}})
	if err != nil {
		return err
	}
	note(l, l.keys, made.Plain)
	return nil
}

func note[K comparable](l *ledger, what map[K]int, id K) {
	now := l.disk.length()
	l.mu.Lock()
	defer l.mu.Unlock()
	what[id] = now
}

// moments are one by chance, and those when little time was left for an fsync: just
// after a block was compacted, or removed, and, where names are there first, after the first answer
// of each kind.
func (l *ledger) moments(fs filesystem) []int {
	at := []int{l.replaced(), l.removed(), l.began + rand.IntN(l.ended-l.began)}
	if fs.name == eager.name {
		at = append(at, first(l.accepted), first(l.finished), first(l.deleted), first(l.keys))
	}
	return at
}

// replaced is the moment just after a block of messages was replaced by a smaller
// one, which the server does not fsync.
func (l *ledger) replaced() int {
	return 1 + slices.IndexFunc(l.disk.changes(l.ended), func(c change) bool {
		return c.kind == renamed && c.replaces && strings.HasSuffix(c.toName, ".blk")
	})
}

// removed is the moment just after a block was removed: what replaced its messages may
// not be on the disk.
func (l *ledger) removed() int {
	return 1 + slices.IndexFunc(l.disk.changes(l.ended), func(c change) bool {
		return c.kind == removed && strings.HasSuffix(c.name, ".blk")
	})
}

// first is the moment of the first of these answers.
func first[K comparable](answered map[K]int) int {
	return slices.Min(slices.Collect(maps.Values(answered)))
}

// before are those answered before the cut.
func before[K cmp.Ordered](answered map[K]int, cut int) []K {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(answered)), func(id K) bool { return answered[id] > cut })
}

// restart starts dev with what a cut has left.
func (l *ledger) restart(t *testing.T, fs filesystem, cut int) *dev {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := fs.left(l.disk.changes(cut)).save(dir); err != nil {
		t.Fatal(err)
	}
	return startDev(t, dir, l.sync)
}

// lost lists the answers before the cut that hold no more.
func (l *ledger) lost(t *testing.T, s *dev, cut int) []string {
	t.Helper()
	var lost []string
	finished := before(l.finished, cut)
	for _, id := range before(l.accepted, cut) {
		j, err := s.client.Status(t.Context(), "ep", id)
		if err != nil || slices.Contains(finished, id) && j.Status != job.Completed {
			lost = append(lost, fmt.Sprintf("job %s, finished %v: %+v, %v", id, slices.Contains(finished, id), j, err))
		}
	}
	deleted := before(l.deleted, cut)
	for _, id := range before(l.made, cut) {
		_, err := s.client.Endpoints().Get(t.Context(), id)
		switch {
		case slices.Contains(deleted, id) && !client.IsNotFound(err):
			lost = append(lost, fmt.Sprintf("the deletion of endpoint %s: %v", id, err))
		case err != nil && !strings.HasSuffix(id, toDelete): // which may have been on its way out
			lost = append(lost, fmt.Sprintf("endpoint %s: %v", id, err))
		}
	}
	for _, secret := range before(l.keys, cut) {
		if err := s.ask(t.Context(), http.MethodGet, "/v2/ep/health", secret, "", nil); err != nil {
			lost = append(lost, fmt.Sprintf("a key: %v", err))
		}
	}
	return lost
}

// drain works off what is left, and new jobs, which get the sequences of those that
// the cut took. No job whose result was taken is handed out. What the worker had is
// done by it if it outlived the cut, and is handed out again after its lease if not.
func (l *ledger) drain(t *testing.T, s *dev, cut int, outlived bool) {
	t.Helper()
	s.token(t)
	accepted := before(l.accepted, cut)
	if outlived {
		s.finishTaken(t, accepted)
	}
	for range 50 {
		j, err := s.client.Run(t.Context(), "ep", client.Request{Input: map[string]int{"n": 1}})
		if err != nil {
			t.Fatal(err)
		}
		accepted = append(accepted, j.ID)
	}
	s.drain(t, before(l.finished, cut))
	for _, id := range accepted {
		if j, err := s.client.Status(t.Context(), "ep", id); err != nil || j.Status != job.Completed {
			t.Errorf("job %s at the end: got %+v, %v, want it COMPLETED", id, j, err)
		}
	}
}

// dev is a running dev.
type dev struct {
	dev    *program.Process
	client *client.Client
	secret string // the worker's token
}

func startDev(t *testing.T, dir, sync string) *dev {
	t.Helper()
	e := program.New(t)
	e.Environ = append(e.Environ, "FLIGHTLINE_API_KEY="+key)
	s := &dev{dev: e.Start("dev", "--no-demo", "--sync", sync, "--data", dir, "--limits", "off")}
	var err error
	if s.client, err = client.New(s.dev.Line(program.Ready), key, client.WithPatience(program.Soon), client.WithRepeatableRuns()); err != nil {
		t.Fatal(err)
	}
	return s
}

// token makes a worker's token.
func (s *dev) token(t *testing.T) {
	t.Helper()
	var issued struct{ Token string }
	if err := s.ask(t.Context(), http.MethodPost, "/v1/endpoints/ep/workers", key, `{"id":"w"}`, &issued); err != nil {
		t.Fatal(err)
	}
	s.secret = issued.Token
}

// together runs each of the parts in n goroutines.
func (s *dev) together(t *testing.T, n int, parts ...func(n int) error) {
	t.Helper()
	var g sync.WaitGroup
	for _, part := range parts {
		for i := range n {
			g.Go(func() {
				if err := part(i); err != nil {
					t.Error(err)
				}
			})
		}
	}
	if g.Wait(); t.Failed() {
		s.dev.Tell()
		t.FailNow()
	}
}

// finishTaken finishes those of the jobs that the worker has.
func (s *dev) finishTaken(t *testing.T, jobs []job.ID) {
	t.Helper()
	for _, id := range jobs {
		j, err := s.client.Status(t.Context(), "ep", id)
		if err == nil && j.Status == job.InProgress {
			err = s.finish(t.Context(), id)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// drain works off all that is left; none of the finished may be handed out.
func (s *dev) drain(t *testing.T, finished []job.ID) {
	t.Helper()
	late := time.Now().Add(program.Soon)
	s.together(t, clients, func(int) error {
		for {
			health, err := s.client.Health(t.Context(), "ep")
			if err != nil || health.Jobs.InQueue+health.Jobs.InProgress == 0 {
				return err
			}
			if time.Now().After(late) {
				return fmt.Errorf("not worked off: %+v", health.Jobs)
			}
			within, cancel := context.WithTimeout(t.Context(), time.Second)
			id, err := s.take(within)
			over := within.Err() != nil
			cancel()
			if id == "" && (over || err == nil) {
				continue
			}
			if err == nil {
				err = s.finish(t.Context(), id)
			}
			if err != nil {
				return err
			}
			if slices.Contains(finished, id) {
				return fmt.Errorf("job %s was handed out, though its result had been taken", id)
			}
		}
	})
}

// take takes a job as RunPod's workers do; "" if none came.
func (s *dev) take(ctx context.Context) (job.ID, error) {
	var taken struct{ ID job.ID }
	err := s.ask(ctx, http.MethodGet, "/v2/ep/job-take/w", s.secret, "", &taken)
	return taken.ID, err
}

func (s *dev) finish(ctx context.Context, id job.ID) error {
	return s.ask(ctx, http.MethodPost, "/v2/ep/job-done/w/"+string(id), s.secret, `{"output":1}`, nil)
}

// ask sends a request, again while dev is busy; what is no success is an error.
func (s *dev) ask(ctx context.Context, method, path, secret, body string, answer any) error {
	for {
		status, err := s.askOnce(ctx, method, path, secret, body, answer)
		if status != http.StatusServiceUnavailable || ctx.Err() != nil {
			return err
		}
	}
}

func (s *dev) askOnce(ctx context.Context, method, path, secret, body string, answer any) (status int, err error) {
	req, err := http.NewRequestWithContext(ctx, method, s.client.BaseURL()+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+secret)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: status %d: %s", method, path, res.StatusCode, data)
	}
	if err != nil || answer == nil || len(data) == 0 {
		return res.StatusCode, err
	}
	return res.StatusCode, json.Unmarshal(data, answer)
}
