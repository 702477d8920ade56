package otlp

import (
	"math"
	"slices"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"google.golang.org/protobuf/encoding/protowire"
)

// deepest is how deep lists and maps of a value may lie in each other; what is
// deeper is left empty.
const deepest = 64

// begin starts a message within b, and finish ends the one that began at that
// place. Most are shorter than 128 bytes, and need a byte for their length.
func begin(b []byte, field protowire.Number) (out []byte, at int) {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return append(b, 0), len(b)
}

func finish(b []byte, at int) []byte {
	size := len(b) - at - 1
	if more := protowire.SizeVarint(uint64(size)) - 1; more > 0 { //nolint:gosec // it is not negative
		b = append(b, "         "[:more]...)
		copy(b[at+1+more:], b[at+1:at+1+size])
	}
	protowire.AppendVarint(b[:at], uint64(size)) //nolint:gosec // as above
	return b
}

func appendString[T ~string | ~[]byte](b []byte, field protowire.Number, v T) []byte {
	return append(appendSize(b, field, len(v)), v...)
}

// appendSize adds what stands before size bytes.
func appendSize(b []byte, field protowire.Number, size int) []byte {
	const short, oneByte = 1 << 7, 1 << 4
	if size < short && field < oneByte {
		return append(b, byte(field)<<3|byte(protowire.BytesType), byte(size)) //nolint:gosec // both are small
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(size)) //nolint:gosec // it is not negative
}

// appendTwo adds a field of two parts.
func appendTwo(b []byte, field protowire.Number, one, two []byte) []byte {
	return append(append(appendSize(b, field, len(one)+len(two)), one...), two...)
}

func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

// appendCount leaves 0 out.
func appendCount(b []byte, field protowire.Number, n int) []byte {
	if n <= 0 {
		return b
	}
	return appendNumber(b, field, uint64(min(n, math.MaxUint32)))
}

func appendFixed64(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), v)
}

func appendFixed32(b []byte, field protowire.Number, v uint32) []byte {
	return protowire.AppendFixed32(protowire.AppendTag(b, field, protowire.Fixed32Type), v)
}

// appendAttribute adds one whose texts are cut to so many characters, unless
// that is negative. A text, which most are, is written without looking back.
func appendAttribute(b []byte, field protowire.Number, kv *attribute.KeyValue, longest int) []byte {
	key := valid(string(kv.Key))
	if kv.Value.Type() != attribute.STRING {
		return appendKeyValue(b, field, *kv, longest, 0)
	}
	text := cut(kv.Value.AsString(), longest)
	const tag = 1 // of the key, the value and the text in it
	value := tag + protowire.SizeBytes(len(text))
	b = appendSize(b, field, tag+tag+protowire.SizeBytes(len(key))+protowire.SizeBytes(value))
	b = appendString(b, keyValueKey, key)
	return appendString(appendSize(b, keyValueValue, value), anyString, text)
}

func appendKeyValue(b []byte, field protowire.Number, kv attribute.KeyValue, longest, depth int) []byte {
	b, at := begin(b, field)
	b = appendString(b, keyValueKey, valid(string(kv.Key)))
	return finish(appendAny(b, keyValueValue, kv.Value, longest, depth), at)
}

func appendAny(b []byte, field protowire.Number, v attribute.Value, longest, depth int) []byte {
	b, at := begin(b, field)
	switch v.Type() {
	case attribute.STRING:
		b = appendString(b, anyString, cut(v.AsString(), longest))
	case attribute.INT64:
		b = appendNumber(b, anyInt, uint64(v.AsInt64())) //nolint:gosec // that is how the format has it
	case attribute.BOOL:
		b = appendNumber(b, anyBool, protowire.EncodeBool(v.AsBool()))
	case attribute.FLOAT64:
		b = appendFixed64(b, anyDouble, math.Float64bits(v.AsFloat64()))
	case attribute.BYTESLICE:
		b = appendString(b, anyBytes, v.AsByteSlice())
	case attribute.MAP:
		b = appendMap(b, v.AsMap(), longest, depth+1)
	case attribute.BOOLSLICE:
		b = appendList(b, v.AsBoolSlice(), attribute.BoolValue, longest, depth+1)
	case attribute.INT64SLICE:
		b = appendList(b, v.AsInt64Slice(), attribute.Int64Value, longest, depth+1)
	case attribute.FLOAT64SLICE:
		b = appendList(b, v.AsFloat64Slice(), attribute.Float64Value, longest, depth+1)
	case attribute.STRINGSLICE:
		b = appendList(b, v.AsStringSlice(), attribute.StringValue, longest, depth+1)
	case attribute.SLICE:
		b = appendList(b, v.AsSlice(), func(v attribute.Value) attribute.Value { return v }, longest, depth+1)
	case attribute.EMPTY: // no value
	}
	return finish(b, at)
}

func appendList[T any](b []byte, list []T, value func(T) attribute.Value, longest, depth int) []byte {
	b, at := begin(b, anyArray)
	if depth <= deepest {
		for _, v := range list {
			b = appendAny(b, listValues, value(v), longest, depth)
		}
	}
	return finish(b, at)
}

// appendMap adds a map: of the entries of a key the last one counts.
func appendMap(b []byte, entries []attribute.KeyValue, longest, depth int) []byte {
	b, at := begin(b, anyMap)
	for i, kv := range entries {
		again := func(later attribute.KeyValue) bool { return later.Key == kv.Key }
		if depth <= deepest && !slices.ContainsFunc(entries[i+1:], again) {
			b = appendKeyValue(b, listValues, kv, longest, depth)
		}
	}
	return finish(b, at)
}

// cut shortens a text to so many characters, unless longest is negative.
func cut(s string, longest int) string {
	s = valid(s)
	if longest < 0 || len(s) <= longest {
		return s
	}
	n := 0
	for at := range s {
		if n == longest {
			return s[:at]
		}
		n++
	}
	return s
}

// valid is s as the format wants it: receivers refuse a whole request for a
// text that is not UTF-8.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return string([]rune(s))
}

// without removes the attribute of that key from the message of a span, if it
// is there.
func without(b []byte, key string) (out []byte, was bool) {
	for at := 0; at < len(b); {
		field, kind, tag := protowire.ConsumeTag(b[at:])
		size := protowire.ConsumeFieldValue(field, kind, b[at+tag:])
		if tag < 0 || size < 0 {
			return b, false // never: we wrote it
		}
		next := at + tag + size
		if field == spanAttributes && keyIs(b[at+tag:next], key) {
			return append(b[:at], b[next:]...), true
		}
		at = next
	}
	return b, false
}

// keyIs reports whether an attribute, with its length before it, has the key.
func keyIs(b []byte, key string) bool {
	_, n := protowire.ConsumeVarint(b)
	_, _, tag := protowire.ConsumeTag(b[n:])
	found, _ := protowire.ConsumeBytes(b[n+tag:])
	return string(found) == key
}
