package child

import "time"

// CPU returns the processor time, in user and kernel mode, that a process has taken which has ended.
// It may be called once Done is closed.
func (p *Process) CPU() time.Duration {
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}
