package otlp

import "google.golang.org/protobuf/encoding/protowire"

// Fields of the messages of opentelemetry/proto, by their numbers.
const (
	resourceAttributes protowire.Number = 1

	resourceSpansResource   protowire.Number = 1
	resourceSpansScopeSpans protowire.Number = 2
	scopeSpansScope         protowire.Number = 1
	scopeSpansSpans         protowire.Number = 2
	scopeSpansSchema        protowire.Number = 3
	scopeName               protowire.Number = 1
	scopeVersion            protowire.Number = 2
	scopeAttributes         protowire.Number = 3

	spanTrace             protowire.Number = 1
	spanSpan              protowire.Number = 2
	spanState             protowire.Number = 3
	spanParent            protowire.Number = 4
	spanName              protowire.Number = 5
	spanKind              protowire.Number = 6
	spanStart             protowire.Number = 7
	spanEnd               protowire.Number = 8
	spanAttributes        protowire.Number = 9
	spanDroppedAttributes protowire.Number = 10
	spanEvents            protowire.Number = 11
	spanDroppedEvents     protowire.Number = 12
	spanLinks             protowire.Number = 13
	spanDroppedLinks      protowire.Number = 14
	spanStatus            protowire.Number = 15
	spanFlags             protowire.Number = 16

	statusMessage protowire.Number = 2
	statusCode    protowire.Number = 3

	eventTime              protowire.Number = 1
	eventName              protowire.Number = 2
	eventAttributes        protowire.Number = 3
	eventDroppedAttributes protowire.Number = 4

	linkTrace             protowire.Number = 1
	linkSpan              protowire.Number = 2
	linkState             protowire.Number = 3
	linkAttributes        protowire.Number = 4
	linkDroppedAttributes protowire.Number = 5
	linkFlags             protowire.Number = 6

	keyValueKey   protowire.Number = 1
	keyValueValue protowire.Number = 2

	anyString protowire.Number = 1
	anyBool   protowire.Number = 2
	anyInt    protowire.Number = 3
	anyDouble protowire.Number = 4
	anyArray  protowire.Number = 5
	anyMap    protowire.Number = 6
	anyBytes  protowire.Number = 7

	listValues protowire.Number = 1 // of arrays and of maps
)
