package driver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

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
	name := p.file(r.PodID, recordEnd)
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
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
