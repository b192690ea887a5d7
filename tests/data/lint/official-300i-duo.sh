export HCCL_OP_EXPANSION_MODE="AIV"
export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True
export OMP_PROC_BIND=false
export OMP_NUM_THREADS=1
export TASK_QUEUE_ENABLE=1
export ASCEND_RT_VISIBLE_DEVICES=0,1

vllm serve Qwen/Qwen3-VL-8B-Instruct \
  --dtype float16 \
  --max_model_len 16384 \
  --host 0.0.0.0 \
  --port 8000 \
  --dtype bfloat16 \
  --no-enable-prefix-caching \
  --tensor-parallel-size 2 \ 
  --trust-remote-code \
  --max-num-seqs 128 \
  --max-model-len 32768 \
  --gpu-memory-utilization 0.91 \
  --compilation-config '{"cudagraph_mode": "FULL_DECODE_ONLY", "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32]}' \
  --additional-config '{"ascend_compilation_config": {"enable_npugraph_ex": false}}' \
  --mm-processor-cache-gb 0
