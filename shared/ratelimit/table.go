package ratelimit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// Table is the bounds by operation. An operation that is not in it has none;
// nil is a table without bounds.
type Table map[string]Bounds

// The operations that can be limited.
const (
	Run        = "run"
	RunSync    = "runsync"
	Status     = "status" // and status-sync
	Stream     = "stream"
	Cancel     = "cancel"
	Retry      = "retry"
	PurgeQueue = "purge-queue"
	OpenAI     = "openai"
	Requests   = "requests"
	Explain    = "explain"
	Scale      = "scale"
	Stats      = "stats" // and failures
)

// Key names the bounds of all operations of one API key, at all endpoints
// together. An endpoint has none of them.
const Key = "key"

// Defaults returns the bounds of the API's contract. For retry, explain, scale and stats, which
// the contract does not name, they are the numbers of cancel, each for itself: a few may ask
// scale every second. Those of a key are ours too.
func Defaults() Table {
	return Table{
		Run:        {1000, 200},
		RunSync:    {2000, 400},
		Status:     {2000, 400},
		Stream:     {2000, 400},
		Cancel:     {100, 20},
		Retry:      {100, 20},
		PurgeQueue: {2, 0},
		OpenAI:     {2000, 400},
		Requests:   {10, 2},
		Explain:    {100, 20},
		Scale:      {100, 20},
		Stats:      {100, 20},
		Key:        {20000, 2000},
	}
}

// Operations returns the names of all operations, in order.
func Operations() []string {
	table := Defaults()
	delete(table, Key)
	return slices.Sorted(maps.Keys(table))
}

// Known reports whether there is an operation of that name.
func Known(operation string) bool {
	_, known := Defaults()[operation]
	return known && operation != Key
}

// Parse reads a table as operators write it:
//
//	{"run": {"requests": 5000, "concurrent": 1000}, "status": null}
//
// What it does not name keeps its default, null and 0 mean no bound. Errors
// name what is wrong.
func Parse(text []byte) (Table, error) {
	var given map[string]json.RawMessage
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&given); err != nil || given == nil {
		return nil, errors.New("must be a JSON object of operations")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("must be one JSON object and nothing after it")
	}
	table := Defaults()
	for _, operation := range slices.Sorted(maps.Keys(given)) {
		standard, known := table[operation]
		if !known {
			return nil, fmt.Errorf("%s is no operation: must be of %s, %s", operation, Key, strings.Join(Operations(), ", "))
		}
		b, err := parseBounds(operation, given[operation], standard)
		if err != nil {
			return nil, err
		}
		table[operation] = b
	}
	return table, nil
}

// parseBounds reads what one operation is given.
func parseBounds(operation string, text json.RawMessage, standard Bounds) (Bounds, error) {
	if string(text) == "null" {
		return Bounds{}, nil
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(text, &given); err != nil {
		return Bounds{}, fmt.Errorf("%s must be an object or null", operation)
	}
	b := standard
	for _, field := range slices.Sorted(maps.Keys(given)) {
		var at *int
		switch field {
		case "requests":
			at = &b.Requests
		case "concurrent":
			at = &b.Concurrent
		default:
			return Bounds{}, fmt.Errorf("%s.%s is unknown: must be requests or concurrent", operation, field)
		}
		*at = 0 // null too means no bound
		if err := json.Unmarshal(given[field], at); err != nil || *at < 0 {
			return Bounds{}, fmt.Errorf("%s.%s must be a whole number of 0 or more", operation, field)
		}
	}
	return b, nil
}
