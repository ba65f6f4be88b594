// Package orders is the pipeline that `unisink demo` shows: orders from a Kafka topic, summed by
// customer over tumbling one-second windows, into a topic and a directory in one decision.
package orders
