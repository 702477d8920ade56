package embedded

import (
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"golang.org/x/time/rate"
)

// logger hands what nats-server says to slog, and keeps what the server calls
// fatal: with a logger of its own it goes on after that, and Start has to
// return it.
type logger struct {
	log     *slog.Logger
	refused rate.Sometimes // logs wrong passwords

	mu    sync.Mutex
	first error
}

// fatal is the first fatal error the server met, nil if none.
func (l *logger) fatal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

func (l *logger) Noticef(format string, v ...any) {
	l.log.Debug("nats server", "text", fmt.Sprintf(format, v...))
}

// plaintext is what the server says of a password given to it in memory, where
// nothing else could be: the advice is for configuration files.
const plaintext = "Plaintext passwords detected, use nkeys or bcrypt"

// rebuilt matches what the server says when it was killed and reads a stream's index
// from its blocks again. It loses nothing: the index is written now and then, and what
// is damaged in the blocks is reported as Damage. Queues lose whole blocks with their
// jobs; of another stream, a block that is not there stays a warning.
var rebuilt = regexp.MustCompile(`^Filestore \[[^\]]*\] (` +
	`Stream state outdated, |Recovering stream state from index errored: prior state file$|` +
	`(TTL|Message scheduling|Sourcing) state is outdated; )` +
	`|^Filestore \[(JOBS_[^\]]*|WEBHOOKS)\] Stream state detected prior state, could not locate msg block `)

// streamLost is what the server says of a stream that it could not open, and deletes: it
// must not be made again as an empty one.
const streamLost = "  Error recreating stream %q: %v"

func (l *logger) Warnf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	switch {
	case format == plaintext:
	case format == streamLost:
		l.Fatalf("the server could not open a stream and deleted it: %s", strings.TrimSpace(text))
	case rebuilt.MatchString(text):
		l.log.Info("nats server", "text", text)
	default:
		l.log.Warn("nats server", "text", text)
	}
}

// newLogger logs a wrong password five times, and then once a minute: a worker that has an
// old one goes on trying.
func newLogger(log *slog.Logger) *logger {
	return &logger{log: log, refused: rate.Sometimes{First: 5, Interval: time.Minute}}
}

func (l *logger) Errorf(format string, v ...any) {
	text := fmt.Sprintf(format, v...)
	say := func() { l.log.Error("nats server", "text", text) }
	if strings.Contains(text, server.ErrAuthentication.Error()) {
		l.refused.Do(say)
		return
	}
	say()
}

func (l *logger) Fatalf(format string, v ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.first == nil {
		l.first = fmt.Errorf(format, v...)
	}
}

// Debugf and Tracef are never called: both are switched off in Start, as they
// tell of each message.
func (l *logger) Debugf(string, ...any) {}

func (l *logger) Tracef(string, ...any) {}
