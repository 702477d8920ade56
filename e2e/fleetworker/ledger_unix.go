//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// lockGPUs holds a lock on a file of the ledger for each GPU that the worker was given,
// until it ends or unlockGPUs. A GPU that another living worker holds is noted as given twice.
func lockGPUs(ledger, uuids string) {
	for uuid := range strings.SplitSeq(uuids, ",") {
		f, err := os.OpenFile(filepath.Join(ledger, uuid+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
		if err == nil {
			err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		}
		kept = append(kept, f)
		line := "used"
		if err != nil {
			line = "twice: " + err.Error()
		}
		note(ledger, fmt.Sprintf("%s by %s: %s\n", uuid, setting("RUNPOD_POD_ID"), line))
	}
}

// kept are the files whose locks end with the process.
var kept []*os.File

// unlockGPUs lets others use the GPUs.
func unlockGPUs() {
	for _, f := range kept {
		_ = f.Close()
	}
	kept = nil
}

// note adds a line to the ledger, if there is one.
func note(ledger, line string) {
	f, err := os.OpenFile(filepath.Join(ledger, "ledger"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = f.WriteString(line)
	_ = f.Close()
}
