// Package ratelimit decides how many requests an operation of an endpoint may get:
// so many in any 10 s ([Window]) and so many at once. [Gate] keeps both, [Table]
// says which bounds hold, and [Bounds.Raised] and [Bounds.Share] what becomes
// of them when workers run and when several servers answer. Servers count nothing together:
// each lets its share of a bound pass, so a client that speaks to one of n gets about 1/n.
//
// The default numbers are in table.go, the quotas of a key in quota.go. services/api
// applies them. It imports the standard library only and reads no clock of its own.
package ratelimit
