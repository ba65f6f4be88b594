package orders

import "github.com/unisink/unisink/adapters/kafka"

// Doctor says what of the brokers is to be looked at before the pipeline runs.
func Doctor(c Config) kafka.DoctorConfig {
	return kafka.DoctorConfig{
		Sink: kafka.SinkConfig{Brokers: c.Brokers, Topic: c.To, Logger: c.Logger}, From: []string{c.From}, To: []string{c.To},
	}
}
