package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/streams"
)

// kind is what an entry of the ledger is about.
type kind string

const (
	// What callers asked for; see answer.
	submitOp kind = "submit"
	statusOp kind = "status"
	cancelOp kind = "cancel"
	retryOp  kind = "retry"
	ttlOp    kind = "ttl"
	purgeOp  kind = "purge"

	// What workers did and were answered.
	began    kind = "began"     // a handler starts
	intends  kind = "intends"   // the output that is about to be delivered, by its hash
	ended    kind = "ended"     // the outcome was taken
	refused  kind = "refused"   // the outcome was not: the lease is lost
	gaveBack kind = "gave back" // the job was given back
	silent   kind = "silent"    // no heartbeat goes out any more, on purpose or because the machine was busy
	spoke    kind = "spoke"     // a heartbeat went out after a silence
	emitted  kind = "emitted"   // a chunk was taken

	// What happened to processes.
	dying kind = "dying" // at a crash point, written by the one who dies
	died  kind = "died"  // noticed by the harness
)

// answer is how a caller's operation ended.
type answer string

const (
	yes     answer = "yes"
	no      answer = "no"      // not possible in this status
	gone    answer = "gone"    // 404
	unknown answer = "unknown" // no answer, or one of an unknown outcome
)

// entry is one line of the ledger. All processes share the machine's clock.
type entry struct {
	Kind kind   `json:"kind"`
	Who  string `json:"who"`
	// Call and At are the beginning and end, in Unix nanoseconds; only
	// operations that take time have a Call.
	Call int64 `json:"call,omitempty"`
	At   int64 `json:"at"`

	Endpoint string `json:"endpoint,omitempty"`
	Job      string `json:"job,omitempty"`
	Attempt  int    `json:"attempt,omitempty"`
	Run      int    `json:"run,omitempty"`
	Status   string `json:"status,omitempty"`
	Answer   answer `json:"answer,omitempty"`
	// Hash is that of an output.
	Hash string `json:"hash,omitempty"`
	// Value is a ttl in milliseconds, a number of jobs, or of a chunk.
	Value int64  `json:"value,omitempty"`
	Point string `json:"point,omitempty"`
}

// ledger is a process's file. Each entry is one write to a file opened for
// appending, so what was written survives the process.
type ledger struct {
	who string

	mu sync.Mutex
	f  *os.File
}

func openLedger(dir, who string) (*ledger, error) {
	f, err := os.OpenFile(filepath.Join(dir, who+".ledger"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open ledger: %w", err)
	}
	return &ledger{who: who, f: f}, nil
}

// write adds an entry; an entry that cannot be written ends the process, since
// without it the audit would accuse the innocent.
func (l *ledger) write(e entry) {
	if e.At == 0 {
		e.At = time.Now().UnixNano()
	}
	if e.Who == "" {
		e.Who = l.who
	}
	line, err := json.Marshal(e)
	if err == nil {
		l.mu.Lock()
		_, err = l.f.Write(append(line, '\n'))
		l.mu.Unlock()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: ledger:", err)
		os.Exit(1)
	}
}

// readLedgers reads all files of a folder.
func readLedgers(dir string) ([]entry, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.ledger"))
	if err != nil {
		return nil, fmt.Errorf("read ledgers: %w", err)
	}
	var all []entry
	for _, name := range names {
		if all, err = readLedger(all, name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func readLedger(all []entry, name string) ([]entry, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read ledger: %w", err)
	}
	defer f.Close() //nolint:errcheck // it was only read
	dec := json.NewDecoder(bufio.NewReader(f))
	for {
		var e entry
		err := dec.Decode(&e)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the last line of one who was killed
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read ledger %s: %w", name, err)
		}
		all = append(all, e)
	}
}

// readTimeout bounds the reading of one stream.
const readTimeout = 30 * time.Second

// each reads all that a stream holds, from its leader.
func (s *site) each(ctx context.Context, name string, do func(*jetstream.RawStreamMsg)) error {
	within, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	stream, err := s.js.Stream(within, name)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	for next := uint64(1); ; {
		m, err := stream.GetMsg(within, next, jetstream.WithGetMsgSubject(">"))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		do(m)
		next = m.Sequence + 1
	}
}

// chunks reads all streamed output, by run, in the order in which it is stored. A
// message has a chunk on each line.
func (s *site) chunks(ctx context.Context) (map[string][][]byte, error) {
	found := map[string][][]byte{}
	err := s.each(ctx, streams.Output(0), func(m *jetstream.RawStreamMsg) {
		found[m.Subject] = append(found[m.Subject], bytes.Split(m.Data, []byte("\n"))...)
	})
	return found, err
}
