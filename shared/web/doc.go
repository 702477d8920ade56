// Package web is what every HTTP service of Flightline stands on: a Fiber app
// with request ids, recovery from panics, authentication, body limits and the one
// table of error codes (errors.go: the codes with their status, and the errors of
// other packages with their code), and [Serve] to run it.
//
// A handler returns errors; [answerError] alone decides what a client learns
// of them. Every answer that is an error is a JSON object
//
//	{"error": text, "code": one of Code, "requestId": id}
//
// and beneath /v1, as RunPod's REST clients want it, "message" with the text
// and "status" with the HTTP status.
//
// Fiber reuses the memory of a request: strings and bytes that outlive the
// handler must be copied. A request's context does not end when the client
// leaves; handlers that wait use [LongPoll]. It ends when the key of the request is revoked
// (longpoll.go asks for it, auth.go answers 401).
//
// A body is read before its request is routed (body.go): up to Config.BodyLimit, and over
// [SmallBody] with room in the budget of all bodies (memory.go). [MaxBody] is the bound of a
// route, before its handler parses what was read.
package web
