package streams

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
)

// ErrCopied means that a copy of a stream is not one of a stream that this
// version makes. The error that wraps it names the setting.
var ErrCopied = errors.New("streams: not a stream of this version")

// mayDiffer are settings that operators choose, or that a start sets again.
var mayDiffer = []string{"name", "description", "num_replicas", "max_age", "max_bytes", "duplicate_window", "metadata", "placement", "compression"}

// CheckCopied returns an ErrCopied unless the configuration, as the server's API
// has it, is that of the stream name as this version makes it: no subject, no
// republish, no source and no other setting that this version would not give it.
// An older version may have had fewer settings. What mayDiffer names is passed.
func CheckCopied(name string, config json.RawMessage) error {
	want, ok := wantedOf(name)
	if !ok {
		return fmt.Errorf("%w: there is no stream %q", ErrCopied, name)
	}
	var got jetstream.StreamConfig
	if err := json.Unmarshal(config, &got); err != nil {
		return fmt.Errorf("%w: stream %s: %w", ErrCopied, name, err)
	}
	if got.Name != name {
		return fmt.Errorf("%w: stream %s has the configuration of %q", ErrCopied, name, got.Name)
	}
	for _, subject := range got.Subjects {
		if !slices.Contains(want.Subjects, subject) {
			return fmt.Errorf("%w: stream %s: subject %q, want one of %q", ErrCopied, name, subject, want.Subjects)
		}
	}
	if got.Retention != want.Retention || got.Storage != want.Storage || len(got.Subjects) == 0 {
		return fmt.Errorf("%w: stream %s: retention %v, storage %v, subjects %q, want %v, %v, %q",
			ErrCopied, name, got.Retention, got.Storage, got.Subjects, want.Retention, want.Storage, want.Subjects)
	}
	return sameSettings(name, want, config)
}

// sameSettings compares all settings by their names in the API, so that one
// which the client library does not know is seen as well.
func sameSettings(name string, want jetstream.StreamConfig, config json.RawMessage) error {
	text, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("encode the settings of %s: %w", name, err)
	}
	var wanted, got map[string]any
	if err := errors.Join(json.Unmarshal(text, &wanted), json.Unmarshal(config, &got)); err != nil {
		return fmt.Errorf("%w: stream %s: %w", ErrCopied, name, err)
	}
	for _, setting := range slices.Sorted(maps.Keys(got)) {
		value := got[setting]
		if setting == "subjects" || slices.Contains(mayDiffer, setting) || unset(value) || reflect.DeepEqual(value, wanted[setting]) {
			continue
		}
		return fmt.Errorf("%w: stream %s: %s is %v, want %v", ErrCopied, name, setting, value, orUnset(wanted[setting]))
	}
	return nil
}

// unset reports whether a setting has the value that it has when it is left out.
func unset(value any) bool {
	switch v := value.(type) {
	case nil:
		return true
	case bool:
		return !v
	case float64:
		return v == 0 || v == -1
	case string:
		return v == ""
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return false
}

func orUnset(value any) any {
	if value == nil {
		return "none"
	}
	return value
}

// wantedOf is the stream of that name as this version makes it; false if it
// makes none of that name.
func wantedOf(name string) (jetstream.StreamConfig, bool) {
	if id, ok := strings.CutPrefix(name, Jobs("")); ok {
		return JobsConfig(Config{}, id), endpoint.ValidID(id)
	}
	for _, of := range []func(Config, int) jetstream.StreamConfig{recordsConfig, outputConfig, payloadsConfig, logsConfig} {
		if p, ok := partitionOf(name, func(p int) string { return of(Config{}, p).Name }); ok {
			return of(Config{}, p), true
		}
	}
	for _, s := range sharedConfigs(Config{}) {
		if s.Name == name {
			return s, true
		}
	}
	return jetstream.StreamConfig{}, false
}

// Takes reports whether the stream of that name, as this version makes it, takes
// messages of the subject.
func Takes(name, subject string) bool {
	want, ok := wantedOf(name)
	if !ok || subject == "" || strings.ContainsAny(subject, " \t\r\n*>") || strings.Contains("."+subject+".", "..") {
		return false
	}
	return slices.ContainsFunc(want.Subjects, func(pattern string) bool { return bus.Covers(pattern, subject) })
}
