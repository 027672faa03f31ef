// What streams have yet to do. A driver that is not hostile does all work at the call. A hostile one only puts it into the
// queue of its stream, and does it as late as it may: when somebody waits for it, and now and then at other calls. Streams
// that nothing orders take turns at random, from a seed. The default stream is one like the others, for the streams of
// frameworks and of the runtime do not wait for it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace queues {

// How much of some streams' work has to be done: what an event stands for.
struct Queue;
using Moment = std::vector<std::pair<std::shared_ptr<Queue>, uint64_t>>;

// From now on work waits; or no longer, after all that waits is done. Of seeds that 3 divides no time passes but when
// somebody waits. strict: see copies from the host.
void be_hostile(uint64_t seed, bool strict);
void be_kind();
bool is_hostile();
bool is_strict();

// A random number below another; 0 of a driver that is not hostile.
uint64_t random(uint64_t below);

// A stream, whose handle no other one gets. One that is destroyed takes no more work, but does what it has.
void* create_stream();
void destroy_stream(void* stream);
// Whether a stream is there. One of a driver that is not hostile always is: tests name some that nobody made.
bool has_stream(void* stream);
// The GPU that has a stream; -1 for a handle that nobody made. Of a default stream it is the thread's.
int device_of(void* stream);
// How many streams were made, and not destroyed.
size_t count();
// Makes a handle that somebody else has chosen that of a stream of the first GPU.
void declare_stream(void* stream);

// Does this at once, or behind what the stream has, which must be there, and behind a moment.
void put(void* stream, std::function<void()> action, Moment behind = {});

// What a stream has now, or all those of a GPU, or of all GPUs (-1).
Moment now_of(void* stream);
Moment now(int device);
// The GPU that does what this thread does now: for actions.
int device();
bool is_past(const Moment& moment);
// Does what has to be done before a moment, and by chance other work.
void wait_for(const Moment& moment);
// Does a little, or nothing: what may happen at any call.
void pass_time();

// Notes what a launch, or the driver, found wrong. Of a hostile driver any thread may find what another one put there, so
// that it is noted for all.
void fail(const char* what);
bool has_failed();
// What went wrong first since it was last asked, or an empty text; for this thread.
const char* failure();

}  // namespace queues
