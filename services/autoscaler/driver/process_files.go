package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"flightline/shared/disk"
	"flightline/shared/pod"
)

// What a Process keeps in its folder.
const (
	podsFolder  = "pods"       // a record and the output of each pod
	machineFile = "machine"    // the id
	lockFile    = "lock"       // held while a Process uses the folder
	recordEnd   = ".json"      // of a pod's record
	logEnd      = ".log"       // of its output
	oldLogEnd   = ".log.older" // of what came before that
)

// record is what is kept of a pod, so that a program that was killed finds it
// again.
type record struct {
	PodID    string `json:"pod"`
	Endpoint string `json:"endpoint,omitempty"`
	Life     int    `json:"life,omitempty"`
	PID      int    `json:"pid"`
	// Birth and Boot tell whether PID is still that process; "" if unknown.
	Birth   string    `json:"birth,omitempty"`
	Boot    string    `json:"boot,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Code    int       `json:"code,omitempty"`
	Reason  string    `json:"reason,omitempty"`
}

func (p *Process) file(podID, end string) string {
	return filepath.Join(p.cfg.Folder, podsFolder, podID+end)
}

// write replaces the pod's record as a whole.
func (p *Process) write(r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return disk.ReplaceFile(p.file(r.PodID, recordEnd), text)
}

// readAll returns the records of the folder. What cannot be read is forgotten:
// its processes are found by their environment.
func (p *Process) readAll() ([]record, error) {
	entries, err := os.ReadDir(filepath.Join(p.cfg.Folder, podsFolder))
	if err != nil {
		return nil, fmt.Errorf("read the pods: %w", err)
	}
	var all []record
	for _, e := range entries {
		id, found := strings.CutSuffix(e.Name(), recordEnd)
		if !found || !pod.ValidID(id) {
			continue
		}
		text, err := os.ReadFile(p.file(id, recordEnd))
		var r record
		if err != nil || json.Unmarshal(text, &r) != nil || r.PodID != id {
			continue
		}
		all = append(all, r)
	}
	return all, nil
}

func (p *Process) erase(podID string) error {
	if !pod.ValidID(podID) {
		return nil
	}
	var all []error
	for _, end := range []string{recordEnd, logEnd, oldLogEnd} {
		if err := os.Remove(p.file(podID, end)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			all = append(all, err)
		}
	}
	return errors.Join(all...)
}

// machineOf is the id that the folder keeps; the first call makes one.
func machineOf(folder string) (string, error) {
	name := filepath.Join(folder, machineFile)
	text, err := os.ReadFile(name)
	if id := strings.TrimSpace(string(text)); err == nil && pod.ValidID(id) {
		return id, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("read the machine's id: %w", err)
	}
	id := "process-" + strings.ReplaceAll(uuid.NewString(), "-", "")[:16]
	if err := os.WriteFile(name, []byte(id+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("keep the machine's id: %w", err)
	}
	return id, nil
}

const (
	// tailBytes of what a pod wrote last to stderr say why it ended.
	tailBytes = 2 << 10
	// logDrainTimeout bounds reading what a pod that ended had written.
	logDrainTimeout = 2 * time.Second
)

// podLog takes what a pod writes: all of it into a file that is bounded, the
// end of stderr into memory.
type podLog struct {
	out, err pipe
	file     *boundedFile
	copying  sync.WaitGroup
	end      tail
	output   *Output // nil for none
}

// pipe is one of a pod's outputs; w is the pod's end.
type pipe struct{ r, w *os.File }

func (p *Process) openLog(podID string, output *Output) (*podLog, error) {
	file, err := openBounded(p.file(podID, logEnd), p.file(podID, oldLogEnd), p.cfg.LogBytes)
	if err != nil {
		return nil, err
	}
	l := &podLog{file: file, end: tail{most: tailBytes}, output: output}
	if l.out.r, l.out.w, err = os.Pipe(); err != nil {
		_ = file.Close()
		return nil, err
	}
	if l.err.r, l.err.w, err = os.Pipe(); err != nil {
		_, _, _ = l.out.r.Close(), l.out.w.Close(), file.Close()
		return nil, err
	}
	out, errs := io.Writer(file), io.MultiWriter(&l.end, file)
	if output != nil {
		out, errs = io.MultiWriter(out, output.Stdout), io.MultiWriter(errs, output.Stderr)
	}
	l.copying.Go(func() { _, _ = io.Copy(out, l.out.r) })
	l.copying.Go(func() { _, _ = io.Copy(errs, l.err.r) })
	return l, nil
}

// started lets go of the pod's ends of the pipes, which the pod has now.
func (l *podLog) started() { _, _ = l.out.w.Close(), l.err.w.Close() }

// close ends the copying: when all is read, or after a while if somebody keeps
// the pipes open.
func (l *podLog) close(within time.Duration) {
	late := time.Now().Add(within)
	_, _ = l.out.r.SetReadDeadline(late), l.err.r.SetReadDeadline(late)
	l.copying.Wait()
	_, _, _ = l.out.r.Close(), l.err.r.Close(), l.file.Close()
}

// tail is the end of what was written to stderr, whole lines if it has any.
func (l *podLog) tail() string { return l.end.text() }

// tail keeps the last bytes written to it.
type tail struct {
	most int
	kept []byte
	cut  bool
}

func (t *tail) Write(b []byte) (int, error) {
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - t.most; over > 0 {
		t.kept, t.cut = append(t.kept[:0], t.kept[over:]...), true
	}
	return len(b), nil
}

func (t *tail) text() string {
	kept := string(t.kept)
	if _, rest, found := strings.Cut(kept, "\n"); t.cut && found && strings.TrimSpace(rest) != "" {
		kept = rest
	}
	for len(kept) > 0 && !utf8.RuneStart(kept[0]) {
		kept = kept[1:]
	}
	return strings.TrimSpace(strings.ToValidUTF8(strings.ReplaceAll(kept, "\x00", ""), "�"))
}

// boundedFile is a file that, when it is full, becomes the older one, and
// begins again.
type boundedFile struct {
	name, older string
	most        int64

	mu   sync.Mutex
	file *os.File
	size int64
}

func openBounded(name, older string, most int64) (*boundedFile, error) {
	file, err := openAppend(name)
	if err != nil {
		return nil, err
	}
	f := &boundedFile{name: name, older: older, most: most, file: file}
	if info, err := file.Stat(); err == nil {
		f.size = info.Size()
	}
	return f, nil
}

// openAppend opens a file that is this user's only: it may hold anything.
func openAppend(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
}

// Write never fails: what a disk cannot take is lost, the pod goes on.
func (f *boundedFile) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.size > 0 && f.size+int64(len(b)) > f.most {
		_ = os.Rename(f.name, f.older)
		if file, err := openAppend(f.name); err == nil {
			_ = f.file.Close()
			f.file, f.size = file, 0
		}
	}
	n, _ := f.file.Write(b)
	f.size += int64(n)
	return len(b), nil
}

func (f *boundedFile) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file.Close()
}
