package driver

import (
	"bytes"
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
	// tailOverlap of what is before them is kept too: no secret of an environment is longer.
	tailOverlap = pod.MaxEnvBytes
	// tailStep is how far apart the places are where a long line may be cut.
	tailStep = 32
	// logDrainTimeout bounds reading what a pod that ended had written.
	logDrainTimeout = 2 * time.Second
)

// podLog takes what a pod writes: all of it into a file that is bounded, the
// end of stderr into memory.
type podLog struct {
	out, err pipe
	file     *boundedFile
	copying  sync.WaitGroup
	end      tail    // of stderr
	output   *Output // nil for none
}

// pipe is one of a pod's outputs; w is the pod's end.
type pipe struct{ r, w *os.File }

func (p *Process) openLog(s Start) (*podLog, error) {
	file, err := openBounded(p.file(s.PodID, logEnd), p.file(s.PodID, oldLogEnd), p.cfg.LogBytes)
	if err != nil {
		return nil, err
	}
	output := s.Output
	l := &podLog{file: file, end: tail{conceal: pod.Concealer(s.Env)}, output: output}
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

// tail keeps the last bytes written to it, tailOverlap and tailBytes at least.
type tail struct {
	conceal func(string) string // hides the secrets of the pod
	kept    []byte
}

func (t *tail) Write(b []byte) (int, error) {
	const most = tailOverlap + tailBytes
	t.kept = append(t.kept, b...)
	if over := len(t.kept) - most; over > most {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(b), nil
}

// text is the last tailBytes without secrets, whole lines if there are any.
func (t *tail) text() string {
	end := t.kept[max(0, len(t.kept)-tailBytes):]
	begun := len(end) < len(t.kept) // within a line, or at its begin
	if _, rest, found := bytes.Cut(end, []byte{'\n'}); begun && found && len(bytes.TrimSpace(rest)) > 0 {
		end, begun = rest, false
	}
	if !begun {
		return strings.TrimSpace(t.conceal(printable(end)))
	}
	return strings.TrimSpace(concealedEnd(printable(t.kept), tailBytes, t.conceal))
}

func printable(text []byte) string {
	return strings.ToValidUTF8(strings.ReplaceAll(string(text), "\x00", ""), "�")
}

// concealedEnd is the end of a text without secrets, most bytes of it at most. A secret that
// begins before the end is hidden with what precedes it only, so the end begins where
// hiding both parts by themselves is the same as hiding the whole. It is "" if there is no
// such place.
func concealedEnd(text string, most int, conceal func(string) string) string {
	whole := conceal(text)
	for at := max(0, len(text)-most); at < len(text); at += tailStep {
		for at < len(text) && !utf8.RuneStart(text[at]) {
			at++
		}
		if rest := conceal(text[at:]); conceal(text[:at])+rest == whole {
			return rest
		}
	}
	return ""
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
