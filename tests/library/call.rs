// Calls the library `layer` from Rust, by declarations of what hlo_disc.h and layer.h say.
use std::ffi::c_void;

const MAX_RANK: usize = 16;
const FLOAT32: i32 = 11;

#[repr(C)]
struct Tensor {
    dtype: i32,
    rank: i32,
    shape: [i64; MAX_RANK],
    data: *mut c_void,
    bytes: usize,
}

#[link(name = "layer")]
extern "C" {
    fn layer_open(settings: *const c_void, version: i32, model: *mut *mut c_void) -> i32;
    fn layer_run(model: *const c_void, inputs: *const Tensor, outputs: *mut Tensor) -> i32;
    fn layer_release(model: *const c_void, output: *mut Tensor);
    fn layer_close(model: *mut c_void);
}

fn main() {
    let mut model: *mut c_void = std::ptr::null_mut();
    let mut x = vec![0f32; 2 * 33];
    x[0] = 1.0;
    let mut shape = [0i64; MAX_RANK];
    shape[0] = 2;
    shape[1] = 33;
    let input = Tensor { dtype: FLOAT32, rank: 2, shape, data: x.as_mut_ptr() as *mut c_void, bytes: 0 };
    let mut output = Tensor { dtype: 0, rank: 0, shape: [0; MAX_RANK], data: std::ptr::null_mut(), bytes: 0 };
    unsafe {
        assert_eq!(layer_open(std::ptr::null(), 1, &mut model), 0);
        assert_eq!(layer_run(model, &input, &mut output), 0);
        let y = std::slice::from_raw_parts(output.data as *const f32, output.bytes / 4);
        let changed = if y[0] - y[33] > 0.5 { 1.0 } else { 0.0 };
        println!("{} x {}, {:.4}", output.shape[0], output.shape[1], changed);
        layer_release(model, &mut output);
        layer_close(model);
    }
}
