from ascend_vl.cli.app import main

main()
