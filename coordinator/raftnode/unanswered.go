package raftnode

import (
	"reflect"

	"github.com/hashicorp/raft"
)

// endWith makes a future answer ErrRaftShutdown once ended is closed. The library has a channel for
// that in each future, and does not set it in those of Apply and LeadershipTransfer: what waits in its
// queues when it is shut down is never answered, and whoever waits for it would wait for ever. There is no
// function to set it; the channel is read by Future.Error alone, which is called after this.
func endWith[F raft.Future](f F, ended chan struct{}) F {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return f // answered already, or a test's
	}
	if c := v.Elem().FieldByName("ShutdownCh"); c.IsValid() && c.CanSet() && c.Type() == reflect.TypeFor[chan struct{}]() {
		c.Set(reflect.ValueOf(ended))
	}
	return f
}
