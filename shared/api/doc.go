// Package api has the requests and answers of the HTTP API as Go types with JSON tags.
// The services encode answers from them and decode requests into them; package
// client decodes and encodes the same types. Durations are milliseconds and their
// names end in Ms; IdleTimeout and ExplainedEndpoint.ScalerValue are RunPod's and
// have its units. Instants that are strings are RFC 3339 in UTC with milliseconds,
// "" or absent without one.
//
// A field that a request may leave out is a pointer: null and a missing field mean
// the default when creating, and no change when updating. Package web has the
// errors; shared/openapi describes the same API for other languages.
package api
