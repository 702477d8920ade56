package driver

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"

	"flightline/shared/disk"
	"flightline/shared/pod"
)

// What a Process keeps in its folder.
const (
	podsFolder  = "pods"    // a record of each pod
	machineFile = "machine" // the id
	lockFile    = "lock"    // held while a Process uses the folder
	recordEnd   = ".json"   // of a pod's record
)

// record is what is kept of a pod, so that a program that was killed finds it
// again.
type record struct {
	PodID    string `json:"pod"`
	Endpoint string `json:"endpoint,omitempty"`
	Life     int    `json:"life,omitempty"`
	PID      int    `json:"pid"`
	// Fleet is the value of its fleetVariable; "" if an earlier version started it.
	Fleet string `json:"fleet,omitempty"`
	// Birth and Boot tell whether PID is still that process; "" if unknown.
	Birth   string    `json:"birth,omitempty"`
	Boot    string    `json:"boot,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Code    int       `json:"code,omitempty"`
	Reason  string    `json:"reason,omitempty"`
}

func (p *Process) file(podID string) string {
	return filepath.Join(p.cfg.Folder, podsFolder, podID+recordEnd)
}

// write replaces the pod's record as a whole.
func (p *Process) write(r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return disk.ReplaceFile(p.file(r.PodID), text)
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
		text, err := os.ReadFile(p.file(id))
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
	if err := os.Remove(p.file(podID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
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

// placeOf is the machine's id and a number for where the folder is, with a dot behind each.
func placeOf(machine, folder string) (string, error) {
	at, err := filepath.Abs(folder)
	if err == nil {
		at, err = filepath.EvalSymlinks(at)
	}
	if err != nil {
		return "", fmt.Errorf("find the folder: %w", err)
	}
	sum := sha256.Sum256([]byte(at))
	return machine + "." + hex.EncodeToString(sum[:8]) + ".", nil
}

const (
	// tailBytes of what a pod wrote last to stderr say why it ended.
	tailBytes = 2 << 10
	// tailOverlap of what is before them is kept too: no secret of an environment is longer.
	tailOverlap = pod.MaxEnvBytes
	// tailStep is how far apart the places are where a long line may be cut.
	tailStep = 32
)

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
